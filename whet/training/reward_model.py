"""Open a reward model: what it reads of samples, its steps, its device."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from whet.data.chat import ChatTemplate
from whet.data.template import PromptTemplate
from whet.errors import UserError
from whet.rewards.models.folder import KEY, RewardFolder, piece_of, read_folder, token_of
from whet.rewards.models.render import Messages, Reads, TextRow, TokensRow, UnreadableError, same_tokenizer
from whet.rewards.models.term import ModelTerm, Steps
from whet.rewards.steps import BLANK_LINE
from whet.types import Prompt, Sample

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from whet.rewards.models.classifier import Classifier
    from whet.training.reward_terms import Surroundings


def open_model_term(around: Surroundings, messages: Messages) -> ModelTerm:
    """Check the folder of `worker.reward.model` and return the term; the weights are loaded later."""
    settings, policy = around.config.worker.reward.model, around.tokenizer
    assert policy is not None, "a run that trains has a tokenizer"
    tokenizer_path = around.model(settings.tokenizer_path) if settings.tokenizer_path else None
    folder = read_folder(around.model(settings.path or ""), settings, tokenizer_path)
    read = _reads(around, policy, folder, messages)
    steps = None
    if folder.scores_steps:
        separator = settings.steps.separator or BLANK_LINE
        steps = Steps(piece_of(policy), separator, settings.steps.reduce)
    elif settings.steps.reduce is not None or settings.steps.mark is not None:
        raise UserError(f"{KEY}.steps: {folder.path} gives one score for a whole response; leave these keys out")
    around.device(KEY, settings.device, settings.dtype)  # a device that is not there is an error before any work
    budget, together = settings.micro_batch_tokens, settings.offload
    return ModelTerm(partial(_load, around, folder), read, budget, steps, together, partial(_check_row, read))


def _load(around: Surroundings, folder: RewardFolder) -> Classifier:
    from whet.rewards.models.classifier import Classifier

    settings = around.config.worker.reward.model
    device, dtype = around.device(KEY, settings.device, settings.dtype)
    answers = None
    if folder.kind == "causal":
        good, bad = (
            token_of(folder.tokenizer, text or "", f"{KEY}.steps.{name}")
            for name, text in (("good", settings.steps.good), ("bad", settings.steps.bad))
        )
        answers = (good, bad)
    return Classifier(folder, device, dtype, settings.trust_remote_code, answers, settings.activation, settings.offload)


def _reads(around: Surroundings, policy: PreTrainedTokenizerBase, folder: RewardFolder, messages: Messages) -> Reads:
    """Return the reader that `worker.reward.model.render` names, or the one that suits the two tokenizers."""
    settings = around.config.worker.reward.model
    longest = settings.max_length or folder.longest
    mark = None if settings.steps.mark is None else token_of(folder.tokenizer, settings.steps.mark, f"{KEY}.steps.mark")
    for name, text in (("good", settings.steps.good), ("bad", settings.steps.bad)):
        if text is not None:
            token_of(folder.tokenizer, text, f"{KEY}.steps.{name}")
    render = _render(around, policy, folder)
    if render == "tokens":
        vocabulary = folder.config.get_text_config().vocab_size
        if len(policy) > vocabulary:
            raise UserError(
                f"{KEY}.render=tokens: the policy has {len(policy)} tokens, the reward model only {vocabulary}; set "
                f"{KEY}.render=chat"
            )
        return TokensRow(longest, mark, before=1 if folder.kind == "value" else 0)
    skip = around.config.worker.reward.skip_special_tokens
    if render == "text":
        template = PromptTemplate(around.file(settings.template or ""), f"{KEY}.template")

        def write(sample: Sample, response: str) -> str:
            asked = messages(sample.prompt)[-1]["content"]
            columns = {**sample.prompt.extra, "answer": sample.prompt.answer, "response": response}
            return template.render(asked, columns, sample.prompt.uid)
    else:
        chat = ChatTemplate(folder.tokenizer)

        def write(sample: Sample, response: str) -> str:
            turns = [*messages(sample.prompt), {"role": "assistant", "content": response}]
            return chat.write_turns(turns, sample.prompt.uid, None, is_open=False)

    return TextRow(
        folder,
        write,
        lambda ids: str(policy.decode(ids, skip_special_tokens=skip)),
        special=render == "text",
        longest=longest,
        mark=settings.steps.mark,
    )


def _render(around: Surroundings, policy: PreTrainedTokenizerBase, folder: RewardFolder) -> str:
    settings = around.config.worker.reward.model
    chosen = settings.render
    if chosen == "auto" and settings.template is not None:
        chosen = "text"
    elif chosen == "auto":
        chosen = "tokens" if same_tokenizer(policy, folder.tokenizer) else "chat"
    if folder.kind == "value" and chosen != "tokens":
        raise UserError(
            f"{KEY}.path: {folder.path} is a critic, which reads the policy's own tokens, but its tokenizer is another"
        )
    if chosen == "chat" and not folder.tokenizer.chat_template:
        raise UserError(
            f"{KEY}: the tokenizer of {folder.path} has no chat template, and is not the policy's: name a file that "
            f"writes the text it reads by {KEY}.template"
        )
    return chosen


def _check_row(read: Reads, prompt: Prompt) -> None:
    """Try a row with its answer as the response; UserError where a template refuses it."""
    if isinstance(read, TokensRow):
        if prompt.media is not None:
            raise UserError(f"{KEY}: {prompt.uid} has images, and reward models read text only: set {KEY}.render=chat")
        return
    text = "" if prompt.answer is None else str(prompt.answer)
    try:
        read(Sample.written(prompt, [], [], "stop", text=text or "."), [])
    except UnreadableError:
        return  # of this response, not of the row
