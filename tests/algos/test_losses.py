"""Policy losses against other trainers' numbers and against values worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch
from algos.golden import read, tensor
from torch import Tensor

from whet.algos import find_policy_loss, preparation_of
from whet.algos.aggregate import MODES, Aggregator, count
from whet.algos.quirks import quirks
from whet.algos.registry import LossInputs
from whet.config.schema.actor import LOSSES, ActorConfig
from whet.errors import UserError

Result = tuple[float, Tensor, dict[str, float]]


def run(
    name: str, inputs: LossInputs, config: ActorConfig, mode: str = "token", match: str = "whet", horizon: int = 5
) -> Result:
    """The loss of a whole mini-batch, its gradient and its metrics."""
    log_probs = inputs.log_probs_BT.clone().requires_grad_()
    prepare = preparation_of(name)
    if inputs.groups_B is None:
        inputs.groups_B = torch.zeros(len(inputs.mask_BT), dtype=torch.int64)
    inputs.prepared = prepare(inputs, config) if prepare else {}
    inputs.log_probs_BT = log_probs
    aggregate = Aggregator(mode, count(inputs.mask_BT, horizon), quirks(match))
    loss, metrics = find_policy_loss(name)(inputs, config, aggregate)
    loss.backward()
    assert not any(value.requires_grad for value in metrics.values())
    return float(loss.detach()), log_probs.grad, {key: float(value) for key, value in metrics.items()}


def _verl(golden: dict) -> LossInputs:
    return LossInputs(*(tensor(golden["inputs"][k]) for k in ("log_prob", "old_log_prob", "adv_for_loss", "mask")))


def _forks(golden: dict) -> LossInputs:
    new, old, advantages = (tensor(golden["loss_inputs"][k]) for k in ("new", "old", "adv"))
    return LossInputs(new, old, advantages, tensor(golden["adv_inputs"]["mask"]))


VERL = ActorConfig(clip_ratio_low=0.2, clip_ratio_high=0.28, clip_ratio_dual=3.0, dro_beta=0.05)
EVERYONE = "clip_cov(ratio=1,lb=.1,ub=5)"  # so many are wanted that every candidate is taken
# under that name
NOT_IN_VERL = (
    *("default", "vanilla", "gspo_token", "clip_cov", "luspo", "vespo", "off_policy_mask"),
    *("flowrl", "spin", "sppo"),
)
RENAMED = {"actor/pg_clipfrac": "pg_clipfrac_higher", "actor/pg_clipfrac_lower": "pg_clipfrac_lower"}


@pytest.mark.parametrize(
    "entry",
    [f"vanilla/{mode}" for mode in MODES]
    + [f"{name}/token-mean" for name in LOSSES.names if name not in NOT_IN_VERL]
    + [f"{EVERYONE}/token-mean"],
)
def test_like_verl(entry: str) -> None:
    golden = read("verl_0.9.1.json")
    expected = golden["policy_loss"][entry]
    name, mode = entry.rsplit("/", 1)
    config = VERL
    if name == EVERYONE:
        name, config = "clip_cov", ActorConfig(**vars(VERL) | {"clip_cov_ratio": 1.0, "clip_cov_lb": 0.1})
    loss, grad, metrics = run(name, _verl(golden), config, mode, "verl")
    assert loss == pytest.approx(expected["loss"], abs=3e-6)
    torch.testing.assert_close(grad, tensor(expected["grad"]), atol=3e-6, rtol=0)
    for theirs, value in expected["metrics"].items():
        ours = RENAMED.get(theirs, theirs.removeprefix("actor/"))
        assert metrics.get(ours, 0.0) == pytest.approx(value, abs=3e-6)  # verl logs 0 where nothing is counted


def test_importance_weights_like_verl() -> None:
    golden = read("verl_0.9.1.json")
    inputs = _verl(golden)
    inputs.weights_BT = torch.full(inputs.mask_BT.shape, 0.5)
    assert run("default", inputs, VERL)[0] == pytest.approx(golden["policy_loss"]["vanilla_isw0.5"]["loss"], abs=3e-6)


@pytest.mark.parametrize("mode", ["token", "seq"])
@pytest.mark.parametrize("entry", ["default", "default_dual1.3", "gspo", "gspo_token", "cispo", "sapo"])
def test_like_easyr1(entry: str, mode: str) -> None:
    golden = read("forks.json")
    expected = golden[f"easyr1.loss.{entry}.{mode}"]
    name = entry.removesuffix("_dual1.3")
    loss, grad, metrics = run(name, _forks(golden), ActorConfig(**expected["kw"]), mode, "easyr1")
    assert loss == pytest.approx(expected["loss"], abs=3e-6)
    torch.testing.assert_close(grad, tensor(expected["grad"]), atol=3e-6, rtol=0)
    for key, value in expected["metrics"].items():
        if key != "entropy_loss":  # a term of the objective, not of the policy loss
            assert metrics[key] == pytest.approx(value, abs=3e-6)


def test_chosen_tokens_like_vppo() -> None:
    golden = read("forks.json")
    inputs, expected = _forks(golden), golden["vppo.loss.default.masked"]
    inputs.weights_BT = tensor(expected["loss_token_mask"])
    loss, grad, metrics = run("default", inputs, VERL, match="vppo")
    assert loss == pytest.approx(expected["loss"], abs=3e-6)
    torch.testing.assert_close(grad, tensor(expected["grad"]), atol=3e-6, rtol=0)
    assert metrics == pytest.approx({k: v for k, v in expected["metrics"].items() if k != "entropy_loss"}, abs=3e-6)


def test_no_dual_clip_like_or1() -> None:
    golden = read("forks.json")
    expected = golden["or1.loss"]
    config = ActorConfig(clip_ratio_low=0.2, clip_ratio_high=0.2)
    loss, grad, metrics = run("default", _forks(golden), config, match="or1")
    assert loss == pytest.approx(expected["loss"], abs=3e-6)
    torch.testing.assert_close(grad, tensor(expected["grad"]), atol=3e-6, rtol=0)
    expected_metrics = {"pg_clipfrac_higher": expected["clipfrac"], "ppo_kl": expected["ppo_kl"]}
    assert metrics == pytest.approx(expected_metrics, abs=3e-6)


def _token(name: str, advantage: float, ratio: float, old: float = 0.25, **keys: float) -> tuple[float, float]:
    one = torch.ones(1, 1, dtype=torch.float64)
    old_log_prob = math.log(old)
    inputs = LossInputs(one * (old_log_prob + math.log(ratio)), one * old_log_prob, one * advantage, one)
    config = ActorConfig(**{"clip_ratio_low": 0.2, "clip_ratio_high": 0.3} | keys)
    loss, grad, _ = run(name, inputs, config)
    return loss, float(grad)


@pytest.mark.parametrize(
    ("advantage", "ratio", "loss", "slope"),
    [
        (1.0, 1.1, -1.1, -1.1),  # inside the bounds
        (1.0, 1.5, -1.3, 0.0),  # good and already more likely: clipped above
        (1.0, 0.5, -0.5, -0.5),  # good and less likely: pulled back
        (-1.0, 0.5, 0.8, 0.0),  # bad and already less likely: clipped below
        (-1.0, 2.0, 2.0, 2.0),  # bad and more likely: pushed down
        (-1.0, 4.0, 3.0, 0.0),  # so much more likely that the dual clip holds
    ],
)
def test_ppo_regions(advantage: float, ratio: float, loss: float, slope: float) -> None:
    assert _token("default", advantage, ratio) == pytest.approx((loss, slope))


def test_gspo_has_no_dual_clip() -> None:
    assert _token("gspo", -1.0, 4.0) == pytest.approx((4.0, 4.0))
    assert _token("gspo_token", -1.0, 4.0) == pytest.approx((4.0, 4.0))


def test_gspo_and_its_token_form_differ_where_advantages_do() -> None:
    new = torch.tensor([[-1.0, -2.0]], dtype=torch.float64)
    old = torch.tensor([[-1.1, -2.0]], dtype=torch.float64)
    advantages = torch.tensor([[1.0, 3.0]], dtype=torch.float64)
    ratio = math.exp(0.05)
    mask = torch.ones(1, 2)
    loss, grad, _ = run("gspo", LossInputs(new, old, advantages, mask), ActorConfig())
    torch.testing.assert_close(grad, torch.full((1, 2), -ratio, dtype=torch.float64))  # both share the mean, A = 2
    token_loss, token_grad, _ = run("gspo_token", LossInputs(new, old, advantages, mask), ActorConfig())
    torch.testing.assert_close(token_grad, -ratio * advantages / 2)
    assert loss == pytest.approx(token_loss) == pytest.approx(-2 * ratio)


@pytest.mark.parametrize(
    ("name", "advantage", "ratio", "slope"),
    [
        ("cispo", 2.0, 5.0, -2.6),  # the weight is clipped at 1.3 and the token still learns
        ("cispo", -2.0, 0.1, 1.6),
        ("gpg", 2.0, 5.0, -2.0),
        ("dro", 2.0, math.exp(0.5), -2.0 + 0.05 * 0.5),
        ("sapo", 1.0, 1.0, -1.0),  # at ratio 1 the gate is open whatever τ is
        ("sapo", -1.0, 1.0, 1.0),
        ("kl_cov", 1.0, 1.5, -1.5 + 1.0),  # the only token is the most covariant
        ("clip_cov", 1.0, 1.1, -1.1),  # its covariance is 0, outside (1, 5)
        ("geo_mean", 1.0, math.exp(0.4), 0.0),  # bounds are on the log-ratio
        ("geo_mean", 1.0, math.exp(0.25), -math.exp(0.25)),
        ("dppo_tv", 1.0, 2.0, -2.0),  # from 0.25 to 0.5: moved by 0.25 ≤ 0.3, which a ratio of 2 would not show
        ("dppo_tv", 1.0, 2.4, 0.0),
        ("dppo_tv", -1.0, 2.4, 2.4),  # pushed back
        ("dppo_tv", -1.0, 0.1, 0.0),
        ("dppo_kl", 1.0, 1.5, -1.5),
        ("dppo_kl", 1.0, 3.9, 0.0),
        ("dppo_kl", -1.0, 3.9, 3.9),
        ("dppo_kl", -1.0, 0.01, 0.0),
    ],
)
def test_slopes_by_hand(name: str, advantage: float, ratio: float, slope: float) -> None:
    assert _token(name, advantage, ratio)[1] == pytest.approx(slope)


def test_dppo_counts_ratios_up_to_its_bound() -> None:
    assert _token("dppo_tv", -1.0, 50.0, old=0.01)[1] == pytest.approx(20.0)
    assert _token("dppo_tv", -1.0, 50.0, old=0.01, dppo_ratio_max=3.0)[1] == pytest.approx(3.0)


def _random(rows: int, width: int, seed: int = 0) -> LossInputs:
    generator = torch.Generator().manual_seed(seed)
    new, old, advantages = torch.randn(3, rows, width, generator=generator, dtype=torch.float64)
    return LossInputs(-new.abs(), -old.abs(), advantages, torch.ones(rows, width))


def test_clip_cov_draws_as_many_as_asked_and_the_same_again() -> None:
    config = ActorConfig(
        clip_cov_ratio=0.1, clip_cov_lb=-9.0, clip_cov_ub=9.0, clip_ratio_high=50.0, clip_ratio_low=0.999
    )
    prepare = preparation_of("clip_cov")
    first = prepare(_random(10, 10), config)["keep"]
    assert int((first == 0).sum()) == 10
    torch.manual_seed(5)  # the global generator has no say
    assert torch.equal(first, prepare(_random(10, 10), config)["keep"])
    assert not torch.equal(first, prepare(_random(10, 10, seed=1), config)["keep"])


def test_kl_cov_takes_the_most_covariant_tokens() -> None:
    inputs = _random(10, 10)
    inputs.mask_BT[:, 7:] = 0
    inputs = LossInputs(inputs.log_probs_BT, inputs.old_log_probs_BT, inputs.advantages_BT, inputs.mask_BT)
    chosen = preparation_of("kl_cov")(inputs, ActorConfig(kl_cov_ratio=0.1))["chosen"]
    A, log_probs = (x[:, :7] - x[:, :7].mean() for x in (inputs.advantages_BT, inputs.log_probs_BT))
    assert torch.equal(chosen[:, :7], A * log_probs >= (A * log_probs).flatten().sort(descending=True).values[6])
    assert not chosen[:, 7:].any()


@pytest.mark.parametrize("name", ["clip_cov", "kl_cov"])
def test_a_mini_batch_without_tokens_is_prepared_too(name: str) -> None:
    zeros = torch.zeros(2, 3)
    loss, grad, _ = run(name, LossInputs(zeros, zeros, zeros, zeros), ActorConfig())
    assert loss == 0.0
    assert torch.equal(grad, zeros)


@pytest.mark.parametrize("name", [name for name in LOSSES.names if name != "vespo"])  # where they scale the ratio
def test_weights_scale_the_loss(name: str) -> None:
    config = ActorConfig(clip_cov_lb=0.1)
    plain, weighted = _random(4, 3), _random(4, 3)
    weighted.weights_BT = torch.full((4, 3), 0.5)
    loss, grad, metrics = run(name, plain, config)
    half_loss, half_grad, same_metrics = run(name, weighted, config)
    assert half_loss == pytest.approx(loss / 2)
    torch.testing.assert_close(half_grad, grad / 2)
    assert metrics == same_metrics


@pytest.mark.parametrize("junk", [math.inf, -math.inf, math.nan, 1e38])
@pytest.mark.parametrize("name", LOSSES.names)
def test_what_lies_outside_the_mask_has_no_effect(name: str, junk: float) -> None:
    mask = torch.tensor([[1.0, 0.0, 1.0], [1.0, 1.0, 0.0], [0.0, 0.0, 0.0]])
    clean = [*torch.randn(3, 3, 3, generator=torch.Generator().manual_seed(3)), mask, torch.rand(3, 3)]
    config = ActorConfig(clip_cov_lb=0.1)
    expected = run(name, LossInputs(*clean), config)
    for i in (0, 1, 2, 4):
        dirty = [*clean[:i], torch.where(mask.bool(), clean[i], junk), *clean[i + 1 :]]
        ours = run(name, LossInputs(*dirty), config)
        assert ours[0] == expected[0]
        assert torch.equal(ours[1], expected[1])
        assert torch.all(ours[1][mask == 0] == 0)
        assert ours[2] == expected[2]


def test_unknown_names_are_refused() -> None:
    with pytest.raises(UserError, match="loss_type=ppo"):
        find_policy_loss("ppo")
