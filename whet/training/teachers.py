"""Teachers of a run: which folders they are, whether they go with the policy, and the prompts that they read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from transformers import PretrainedConfig, PreTrainedTokenizerBase

from whet.assets import resolve_model
from whet.config import Config, local_name
from whet.data.rows import RowReader
from whet.errors import UserError
from whet.learn.learner import LocalLearner
from whet.learn.teacher import LocalTeacher
from whet.model.load import load_model, load_model_config, load_tokenizer
from whet.model.modality import has_vision
from whet.tracking.console import Console
from whet.training.device import Placement
from whet.training.parts import budget, check_lengths, resolver
from whet.types import Prompt, Sample

if TYPE_CHECKING:
    from whet.data.loader import PromptLoader
    from whet.training.model_folder import ModelFolder

SECTION = "algorithm.distill"
CHECKED_AT_ONCE = 1000  # prompts of the teacher that are in memory at once while all are checked

Paths = Mapping[str | None, str]  # folders of teachers by data source; None has all others


def find_teachers(config: Config, model: ModelFolder, console: Console) -> Paths:
    """Return the folders of the teachers; raise a `UserError` for one that cannot teach this policy."""
    distill, found = config.algorithm.distill, dict[str | None, str]()
    if distill.format_prompt is not None and model.processor is not None:
        raise UserError(f"{SECTION}.format_prompt: prompts of the teacher's own are text; a policy that sees has none")
    for source, name in distill.paths.items():
        key = f"{SECTION}.model_path" if source is None else f"{SECTION}.model_paths.{source}"
        path = resolve_model(local_name(config, name), console.note)
        if path not in found.values():
            _check_teacher(config, path, key, model)
        found[source] = path
    return found


def _check_teacher(config: Config, path: str, key: str, model: ModelFolder) -> None:
    trust = config.algorithm.distill.trust_remote_code
    teacher = load_model_config(path, trust, section=SECTION)
    tokenizer = load_tokenizer(path, trust, key)
    if difference := vocabulary_difference(model.tokenizer, tokenizer):
        raise UserError(
            f"{key}={path}: its tokenizer is not the policy's ({difference}). A teacher is asked about the very tokens "
            "that the policy wrote; choose one with the same vocabulary, as models of one family have"
        )
    check_lengths(config, teacher, tokenizer, "teacher")
    if (has_vision(model.config) or has_vision(teacher)) and teacher.model_type != model.config.model_type:
        raise UserError(
            f"{key}={path} is of the kind {teacher.model_type}, the policy of the kind {model.config.model_type}: "
            "where one of them sees images, both must be of one kind, so that they read the same tokens of an image"
        )


def vocabulary_difference(policy: PreTrainedTokenizerBase, teacher: PreTrainedTokenizerBase) -> str | None:
    """Return in words what differs between two vocabularies; None if every id is the same token in both."""
    ours, theirs = ({id: token for token, id in each.get_vocab().items()} for each in (policy, teacher))
    if ours == theirs:
        return None
    if len(ours) != len(theirs):
        return f"{len(theirs)} tokens, and the policy's has {len(ours)}"
    first = min(id for id in ours.keys() | theirs.keys() if ours.get(id) != theirs.get(id))
    return f"token {first} is {theirs.get(first)!r}, and in the policy's {ours.get(first)!r}"


@dataclass(frozen=True)
class TeacherPrompts:
    """Prompts of the teacher's own, made from the rows of the policy's."""

    config: Config
    tokenizer: PreTrainedTokenizerBase
    reader: RowReader
    longest: int | None  # tokens of prompt and response that the teacher has positions for

    @classmethod
    def of(
        cls, config: Config, tokenizer: PreTrainedTokenizerBase, teachers: Iterable[PretrainedConfig]
    ) -> TeacherPrompts:
        """Prompts as `algorithm.distill.format_prompt` writes them."""
        data = replace(config.data, format_prompt=config.algorithm.distill.format_prompt)
        limits = [getattr(each.get_text_config(), "max_position_embeddings", None) for each in teachers]
        longest = min((limit for limit in limits if limit is not None), default=None)
        return cls(config, tokenizer, RowReader(data, tokenizer, resolver(config)), longest)

    def make(self, prompts: Sequence[Prompt]) -> list[Prompt]:
        """Return the teacher's prompts for the same rows."""
        uids = [prompt.uid for prompt in prompts]
        chats = [self.reader.prompt(prompt.extra, prompt.uid)[0] for prompt in prompts]
        texts = self.reader.chat.write(chats, uids)
        ids = self.tokenizer(texts, add_special_tokens=self.reader.special, return_attention_mask=False)["input_ids"]
        made = [replace(prompt, ids=each, text=text) for prompt, each, text in zip(prompts, ids, texts)]
        for prompt in made:
            self._check_length(prompt)
        return made

    def samples(self, samples: Sequence[Sample]) -> list[Sample]:
        """Return the same responses to the teacher's prompts; samples of one prompt still share it."""
        prompts = {id(sample.prompt): sample.prompt for sample in samples}
        made = dict(zip(prompts, self.make(list(prompts.values()))))
        return [replace(sample, prompt=made[id(sample.prompt)]) for sample in samples]

    def _check_length(self, prompt: Prompt) -> None:
        response = self.config.data.max_response_length
        if not prompt.ids:
            raise UserError(f"{prompt.uid}: {SECTION}.format_prompt leaves no token of this row's prompt")
        if self.longest is not None and len(prompt.ids) + response > self.longest:
            raise UserError(
                f"{prompt.uid}: {SECTION}.format_prompt makes a prompt of {len(prompt.ids)} tokens, which with "
                f"data.max_response_length={response} is more than the {self.longest} positions of the teacher; "
                "shorten it"
            )


@dataclass(frozen=True)
class Teacher:
    """The teachers' models, and the prompts that they read; None where these are the policy's."""

    model: LocalTeacher
    prompts: TeacherPrompts | None

    def samples(self, samples: Sequence[Sample]) -> Sequence[Sample]:
        """Return samples as the teacher reads them."""
        return self.own_samples(samples) or samples

    def own_samples(self, samples: Sequence[Sample]) -> list[Sample] | None:
        """Return the same with prompts of the teacher's own; None if it reads the policy's."""
        return None if self.prompts is None else self.prompts.samples(samples)


def check_prompts(config: Config, model: ModelFolder, paths: Paths, loader: PromptLoader[Prompt]) -> None:
    """Make the teacher's prompt of every row; raise a `UserError` that names the first row that has none."""
    trust = config.algorithm.distill.trust_remote_code
    teachers = [load_model_config(path, trust, section=SECTION) for path in paths.values()] or [model.config]
    prompts = TeacherPrompts.of(config, model.tokenizer, teachers)
    for start in range(0, len(loader), CHECKED_AT_ONCE):
        prompts.make(loader.prompts(range(start, min(start + CHECKED_AT_ONCE, len(loader)))))


def open_teacher(
    config: Config, paths: Paths, placement: Placement, learner: LocalLearner, tokenizer: PreTrainedTokenizerBase
) -> Teacher:
    """Load the teachers beside the policy, each folder once; without a folder the policy is its own."""
    trust = config.algorithm.distill.trust_remote_code
    loaded = {
        path: load_model(path, placement.dtype, placement.device, trust, section=SECTION).requires_grad_(False)
        for path in dict.fromkeys(paths.values())
    }
    models = {source: loaded[path] for source, path in paths.items()} or {None: learner.model}
    tokens = budget(config, "actor", learner.model).tokens_experience
    teacher = LocalTeacher(models, config.worker.actor, config.worker.rollout.temperature, tokens)
    learner.teacher = teacher
    prompts = None
    if config.algorithm.distill.format_prompt is not None:
        prompts = TeacherPrompts.of(config, tokenizer, [each.config for each in models.values()])
    return Teacher(teacher, prompts)
