"""Does VPPO find the word that depends on the picture, and is the rest noise? Before training, on `whet/sentences`.

In each reply one token of fifteen, the number, depends on the picture. Two tables:

1. For both estimates of a token's dependency and several masks of the picture, how often the number is among the
   tokens kept, and the dependencies behind it.
2. How much of a step's gradient g is signal, |E g|² / E|g|² over steps at the same weights (as many times more samples
   would make up for a share as much smaller): for all tokens, the number alone, the tokens that VPPO keeps, and with
   its weights of responses.

    python bench/vppo_mask.py [--steps 16] [--shares 0.066 0.1 0.2 0.4] [KEY=VALUE ...]
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import chain

import torch
from torch import Tensor
from vppo import CONFIG, SENTENCES, VPPO

from whet.algos.shaping import relative_dependency, response_dependency, response_weights, top_tokens
from whet.config import check_config, load_config, with_values
from whet.learn.packing import pad
from whet.learn.scoring import score
from whet.tracking.console import Console
from whet.training.experience import sampler_log_probs
from whet.training.job import open_trainer
from whet.training.measure import StepClock
from whet.training.perception import visual_dependency
from whet.training.rollouts import sampling_params
from whet.training.signals import SignalInputs
from whet.training.trainer import Trainer
from whet.types import Sample

MASKS = (("patches", 0.5), ("patches", 0.9), ("grey", 1.0), ("blank", 1.0))
PARTS = {"vision tower": ".visual.", "embedding": "embed_tokens", "layers": ".layers."}  # and what names have in them
PROMPTS, SAMPLES = 32, 8  # a step
ESTIMATES = ("k3", "full")


def main() -> None:
    arguments = _arguments()
    task = SENTENCES
    settings = (
        task.keys
        | VPPO
        | {
            "worker.actor.model.model_path": task.model,
            "data.train_files": f"{task.files}train",
            "data.val_files": f"{task.files}test",
        }
    )
    settings |= {"trainer.logger": "[file]", "trainer.quiet": "true", "worker.rollout.n": SAMPLES, "config": CONFIG}
    with tempfile.TemporaryDirectory() as place, ExitStack() as stack:
        settings |= {"trainer.save_checkpoint_path": place, "data.rollout_batch_size": PROMPTS}
        config = load_config([*(f"{key}={value}" for key, value in settings.items()), *arguments.keys])
        check_config(config)
        trainer = open_trainer(config, Console(quiet=True), stack)
        steps = [*draw(trainer, arguments.steps)]
        print_masks(trainer, [*chain.from_iterable(steps[:2])], arguments.shares)
        print_signal(trainer, steps, arguments.shares)


def draw(trainer: Trainer, steps: int) -> Iterator[list[Sample]]:
    """The scored replies of so many steps, all of the same weights."""
    assert trainer.data.train is not None
    params = sampling_params(trainer.config.worker.rollout, trainer.config.data.max_response_length)
    for step in range(steps):
        prompts, first = trainer.data.train.prompts(trainer.data.train.next_rows()), step * PROMPTS * params.n
        ids = range(first, first + len(prompts) * params.n, params.n)
        samples = trainer.rollouts.generate(prompts, params, ids, lambda count: None)
        trainer.rollouts.score(samples)
        yield samples


def where_the_number_is(trainer: Trainer, samples: Sequence[Sample]) -> tuple[Tensor, Tensor]:
    """(B, T) twice: 1 on every token, and 1 on tokens with a digit."""
    words = [trainer.model.tokenizer.batch_decode([[token] for token in sample.ids]) for sample in samples]
    digits = [[float(any(map(str.isdigit, word))) for word in reply] for reply in words]
    return pad([[1.0] * len(sample.ids) for sample in samples]), pad(digits)


def dependency(trainer: Trainer, samples: Sequence[Sample], estimate: str, step: int = 1) -> Tensor:
    """Return the dependency S (B, T) by one of both estimates."""
    trainer.config = with_values(trainer.config, {"algorithm.perception_kl": estimate})
    inputs = SignalInputs(trainer.config, trainer.models, trainer.rollouts, trainer.model.processor)
    return visual_dependency(inputs, samples, sampler_log_probs(samples), step, StepClock(trainer.console))


def print_masks(trainer: Trainer, samples: Sequence[Sample], shares: Sequence[float]) -> None:
    """The first table."""
    mask_BT, number_BT = where_the_number_is(trainer, samples)
    told, lengths_B, algorithm = number_BT.sum(dim=1) == 1, mask_BT.sum(dim=1), trainer.config.algorithm
    print(f"{len(samples)} replies of {lengths_B.mean():.1f} tokens, {told.float().mean():.0%} with one number\n")
    heads = " | ".join(f"number kept, of {share:.0%}" for share in shares)
    print(f"| picture | dependency | {heads} | of the number: mean (median) | largest other: mean |")
    print("|---" * (len(shares) + 4) + "|")
    used = {"algorithm.perception_mask": algorithm.perception_mask}
    used |= {"algorithm.perception_mask_ratio": algorithm.perception_mask_ratio}
    for kind, ratio in MASKS:
        mask = {"algorithm.perception_mask": kind, "algorithm.perception_mask_ratio": ratio}
        trainer.config = with_values(trainer.config, mask)
        for estimate in ESTIMATES:
            S_BT = dependency(trainer, samples, estimate)
            kept = [(top_tokens(S_BT, mask_BT, share).mask_BT * number_BT)[told].sum(dim=1).mean() for share in shares]
            own_B = (S_BT * number_BT).sum(dim=1)[told]
            other_B = (S_BT * (mask_BT - number_BT))[told].amax(dim=1)
            name = f"{kind} {ratio:.0%}" if kind == "patches" else kind
            found = " | ".join(f"{float(share):.0%}" for share in kept)
            print(
                f"| {name} | {estimate} | {found} | {own_B.mean():.4f} ({own_B.median():.4f}) | {other_B.mean():.4f} |"
            )
    trainer.config = with_values(trainer.config, used)


def print_signal(trainer: Trainer, steps: Sequence[list[Sample]], shares: Sequence[float]) -> None:
    """The second table."""
    gradients: dict[str, list[dict[str, Tensor]]] = {}
    most = []
    for step, samples in enumerate(steps):
        mask_BT, number_BT = where_the_number_is(trainer, samples)
        weights = {"all tokens": mask_BT, "the number": number_BT, "all but the number": mask_BT - number_BT}
        for estimate in ESTIMATES:
            S_BT, everyone = dependency(trainer, samples, estimate, step), torch.ones(len(samples), dtype=torch.bool)
            for share in shares:
                weights[f"kept by {estimate}, {share:.0%}"] = top_tokens(S_BT, mask_BT, share).mask_BT
            z_B = relative_dependency(response_dependency(S_BT, mask_BT), everyone)
            shaped = response_weights(z_B, everyone, trainer.config.algorithm.advantage_scaling_min)
            weights[f"all tokens, responses weighed by {estimate}"] = mask_BT * shaped.weights_B[:, None]
        most.append(shaped.most)
        for name, gradient in gradients_of(trainer, samples, weights, float(mask_BT.sum())):
            gradients.setdefault(name, []).append(gradient)
    print(f"\nlargest weight of a response in a step: {min(most):.1f} to {max(most):.1f}\n")
    print(f"| gradient of | everything | {' | '.join(PARTS)} |\n" + "|---" * (len(PARTS) + 2) + "|")
    for name, found in gradients.items():
        whole = [torch.cat([*gradient.values()]) for gradient in found]
        parts = [[gradient[part] for gradient in found] for part in PARTS]
        print(f"| {name} | {' | '.join(f'{signal(each):.3f}' for each in (whole, *parts))} |")


def signal(gradients: Sequence[Tensor]) -> float:
    """|E g|² / E|g|²; the products of pairs have no noise in common."""
    stacked, n = torch.stack([*gradients]).double(), len(gradients)
    products = stacked @ stacked.T
    return float((products.sum() - products.trace()) / (n - 1) / products.trace())


def gradients_of(
    trainer: Trainer, samples: Sequence[Sample], weights: dict[str, Tensor], tokens: float
) -> Iterator[tuple[str, dict[str, Tensor]]]:
    """The policy gradient of a step with each of these weights (B, T) of tokens, a vector for each part."""
    rewards = torch.tensor([sample.reward for sample in samples]).view(-1, SAMPLES)
    advantages = (rewards - rewards.mean(dim=1, keepdim=True)) / (rewards.std(dim=1, keepdim=True) + 1e-6)
    trained = {name: value for name, value in trainer.models.learner.model.named_parameters() if value.requires_grad}
    of = [next((part for part, mark in PARTS.items() if mark in name), "layers") for name in trained]
    log_probs_BT = score(trainer.models.learner.model, list(samples), 1.0, True).log_probs_BT
    for name, weights_BT in weights.items():
        loss = -(advantages.view(-1, 1) * log_probs_BT * weights_BT).sum() / tokens
        found = torch.autograd.grad(loss, [*trained.values()], retain_graph=True)
        yield name, {part: torch.cat([g.flatten() for g, its in zip(found, of) if its == part]) for part in PARTS}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("keys", nargs="*", metavar="KEY=VALUE", help="keys of the config")
    parser.add_argument("--steps", type=int, default=16, help="of the second table; the first has two")
    parser.add_argument("--shares", type=float, nargs="+", default=[1 / 15, 0.1, 0.2, 0.4])
    return parser.parse_args()


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
