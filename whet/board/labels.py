"""Labels of the report in English and Chinese; texts of a run are never looked up here."""

from __future__ import annotations

LANGUAGES = ("en", "zh")
_CHINESE = {
    "Findings": "发现",
    "None.": "无。",
    "Curves": "曲线",
    "Numbers": "数值",
    "Config": "配置",
    "Samples": "样本",
    "Best samples": "最好的样本",
    "Worst samples": "最差的样本",
    "step": "步",
    "before the first step": "第一步之前",
    "metric": "指标",
    "first": "最初",
    "lowest": "最低",
    "highest": "最高",
    "last": "最后",
    "key": "键",
    "value": "值",
    "default": "默认",
    "prompt": "提示",
    "response": "回答",
    "answer": "答案",
    "reward": "奖励",
    "no score": "无得分",
    "tokens": "个词元",
    "train": "训练",
    "val": "验证",
    "running": "进行中",
    "finished": "已完成",
    "stopped": "已停止",
    "No metric that is drawn by itself was logged.": "没有记录可绘制的指标。",
    "The run kept none (trainer.log_samples).": "运行没有保存样本（trainer.log_samples）。",
    "The run has no config.yaml.": "运行没有 config.yaml。",
}


class Labels:
    """Labels in one language."""

    def __init__(self, language: str = "en") -> None:
        self.language = language

    def __call__(self, text: str) -> str:
        """Return a label; English ones are their own names."""
        return _CHINESE.get(text, text) if self.language == "zh" else text
