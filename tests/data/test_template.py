from __future__ import annotations

import pytest

from whet.data.template import PromptTemplate
from whet.errors import UserError


@pytest.fixture
def template(tmp_path):
    def write(text: str) -> PromptTemplate:
        path = tmp_path / "math.jinja"
        path.write_text(text, encoding="utf-8")
        return PromptTemplate(path)

    return write


def test_content_and_prompt_name_the_prompts_text(template):
    row = {"question": "1+1?", "level": 3, "info": {"unit": "cm"}}
    made = template("\n {{ content }}|{{ prompt }}|{{ question }}|{{ level }}|{{ info.unit }} \n\n").render(
        "1+1?", row, "r:1"
    )
    assert made == "1+1?|1+1?|1+1?|3|cm"


def test_only_the_template_is_stripped_and_nothing_is_escaped(template):
    assert template("{{ content }}\n").render("  <a & b>\n", {}, "r:1") == "  <a & b>\n"


def test_optional_columns(template):
    text = "{{ content }}{% if hint is defined %} ({{ hint }}){% endif %}"
    assert template(text).render("x", {}, "r:1") == "x"
    assert template(text).render("x", {"hint": "y"}, "r:1") == "x (y)"


def test_unknown_column(template):
    with pytest.raises(UserError) as caught:
        template("{{ content }} {{ quesion }}").render("x", {"question": "x"}, "train.jsonl:4")
    for part in ("data.format_prompt", "math.jinja", "train.jsonl:4", "'quesion'", "content, prompt, question"):
        assert part in str(caught.value)
    assert "Did you mean question?" in str(caught.value)


def test_unknown_field_of_a_column(template):
    with pytest.raises(UserError, match="has no attribute 'unit'"):
        template("{{ info.unit }}").render("x", {"info": {}}, "r:1")


@pytest.mark.parametrize("text", ["{{ 1 / n }}", "{{ content | round }}", "{{ content.__class__.__mro__[1]() }}"])
def test_whatever_a_template_raises_is_about_the_template(template, text):
    with pytest.raises(UserError, match=r"math\.jinja (failed )?on r:1"):
        template(text).render("x", {"n": 0}, "r:1")


def test_syntax_error_names_the_line(template):
    with pytest.raises(UserError, match=r"data\.format_prompt: .*math\.jinja:2: "):
        template("{{ content }}\n{% if %}")


def test_missing_or_unreadable_file(tmp_path):
    with pytest.raises(UserError, match=r"data\.format_prompt: the template .*no\.jinja"):
        PromptTemplate(tmp_path / "no.jinja")
    (tmp_path / "latin.jinja").write_bytes(b"\xff")
    with pytest.raises(UserError, match="not UTF-8"):
        PromptTemplate(tmp_path / "latin.jinja")
