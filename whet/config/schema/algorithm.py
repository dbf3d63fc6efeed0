"""`algorithm.*`: the advantage, the KL penalty, and which groups of samples count."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from whet.config.function_registry import FunctionRegistry
from whet.config.keys import about, key, section
from whet.config.schema.correction import PRESETS, RolloutCorrectionConfig
from whet.config.schema.distill import DistillConfig

ADVANTAGES = FunctionRegistry(
    "algorithm.adv_estimator", "whet.algos.advantages", "advantage", entry_points="whet.advantages"
)
PF_PPO = ("pow", "max_min", "max_random")
ANCHORS = ("observation", "history")
PRIME_NORMS = ("batch_norm", "none")
MATCHES = ("whet", "verl", "easyr1", "vppo", "or1")
_ESTIMATORS = ("kl", "k1", "abs", "mse", "k2", "low_var_kl", "k3")
PERCEPTION_MASKS = ("patches", "noise", "blur", "grey", "blank")
PERCEPTION_KLS = ("k3", "full")
KL_PENALTIES = (*_ESTIMATORS, *(f"{name}+" for name in _ESTIMATORS), "full")


@dataclass(frozen=True)
class FilterGroupsConfig:
    """DAPO's dynamic sampling."""

    enable: bool = key(False, "sample until enough groups have samples that differ in metric (DAPO)")
    metric: str = key("overall", "score that must differ within a group; reward and seq_reward mean overall")
    max_num_gen_batches: int = key(0, "draws before training on what there is; 0 = trainer.max_try_make_batch", least=0)


@dataclass(frozen=True)
class PFPPOConfig:
    """Resampling of PF-PPO."""

    reweight_method: str = key(
        "pow", "chances of a sample: |score|^weight_pow, only best and worst, best four times the rest", choices=PF_PPO
    )
    weight_pow: float = key(2.0, "exponent of reweight_method=pow", least=0)


@dataclass(frozen=True)
class ReplayBufferConfig:
    """Groups of earlier steps that are trained on again."""

    size: int = key(0, "solved groups that are kept, the newest; 0 = none", least=0, most=1_000_000)
    groups: int = key(1, "groups of a step that come from the buffer, once it has as many", least=1, most=1_000_000)
    max_age: int | None = key(None, "updates after which a group leaves the buffer; null = none", least=1)


@dataclass(frozen=True)
class PrimeConfig:
    """The implicit process reward model of `adv_estimator: prime`."""

    beta: float = key(0.05, "scale of process rewards: beta (log reward model - log reference) of each token", above=0)
    coef: float = key(1.0, "weight of process rewards beside the score", least=0)
    norm: str = key(
        "batch_norm",
        "batch_norm: the largest return of process rewards is 1; none: beta scales them",
        choices=PRIME_NORMS,
    )
    lr: float = key(1e-6, "learning rate of the reward model", least=0, most=1000)
    model_path: str | None = key(None, "folder or hub id that the reward model starts from; null = the policy's")


@dataclass(frozen=True)
class AlgorithmConfig:
    """Advantages, KL to the reference, filters and corrections."""

    gamma: float = key(1.0, "discount factor of gae and reinforce_plus_plus", least=0, most=1)
    lam: float = key(1.0, "lambda of gae: 0 trusts the critic, 1 the rewards", least=0, most=1)
    adv_estimator: str = key("grpo", "how rewards become advantages", choices=lambda: ADVANTAGES.names, open=True)
    norm_adv_by_std: bool = key(True, "GRPO divides by the group's standard deviation; false leaves it out (Dr. GRPO)")
    gdpo_reward_keys: list[str] = field(
        default_factory=list, metadata=about("scores that gdpo normalises one by one; none = overall alone")
    )
    gdpo_reward_weights: list[float] = field(
        default_factory=list, metadata=about("a weight for each of gdpo_reward_keys; none = 1 for each")
    )
    otb_zero_tail: bool = key(
        True, "optimal token baselines: no baseline where only the longest response runs; false = advantage 0 there"
    )
    flowrl_beta: float = key(15.0, "flowrl: weight of the normalised reward in the target distribution", above=0)
    gigpo_step_weight: float = key(1.0, "gigpo: weight of the advantage within turns from equal states", least=0)
    gigpo_anchor: str = key(
        "observation",
        "gigpo: states are equal by the last observation, or by all that was written before",
        choices=ANCHORS,
    )
    prime: PrimeConfig = field(
        default_factory=PrimeConfig, metadata=section("prime: a reward model that is trained with the policy")
    )
    rae_key: str = key("role", "rae: column of the data that names the role, each with a baseline of its own")
    rae_decay: float = key(0.95, "rae: share of the old baseline that each episode keeps", least=0, below=1)
    demonstration_key: str | None = key(
        None, "column with a response that stands in each group in place of its last sample (spin); null = none"
    )
    observation_coef: float = key(
        0.0, "weight of the cross-entropy of what tools and environments wrote (ECHO); 0 = not learned", least=0
    )
    replay_buffer: ReplayBufferConfig = field(
        default_factory=ReplayBufferConfig, metadata=section("solved groups of earlier steps, trained on again")
    )
    extensions: list[str] = field(
        default_factory=list, metadata=about("Python files of yours that register advantages and policy losses")
    )
    match: str = key("whet", "whose numbers to reproduce, slips included; whet has none", choices=MATCHES)
    disable_kl: bool = key(False, "no KL term at all, and no reference model")
    use_kl_loss: bool = key(False, "KL is a term of the loss; false subtracts it from the reward")
    kl_penalty: str = key(
        "kl",
        "KL estimator: kl = k1, mse = k2, low_var_kl = k3; with + the gradient of k2; full = over all tokens, exact",
        choices=KL_PENALTIES,
    )
    kl_coef: float = key(1e-3, "weight of the KL term", least=0)
    kl_type: str = key("fixed", "whether kl_coef stays or follows kl_target", choices=("fixed", "adaptive"))
    kl_horizon: float = key(10000.0, "samples over which the adaptive kl_coef moves", above=0)
    kl_target: float = key(0.1, "KL that the adaptive kl_coef aims at", above=0)
    online_filtering: bool = key(
        False, "sample until enough groups have a mean score between filter_low and filter_high"
    )
    filter_key: str = key("overall", "score that online filtering looks at")
    filter_low: float = key(0.01, "groups with a mean score at or below this are dropped")
    filter_high: float = key(0.99, "groups with a mean score at or above this are dropped")
    filter_groups: FilterGroupsConfig = field(
        default_factory=FilterGroupsConfig, metadata=section("DAPO's dynamic sampling")
    )
    use_vppo_on_perception: bool = key(
        False, "VPPO: only the tokens of a response that depend most on its images get a policy gradient"
    )
    top_p_perception_tokens: float = key(0.2, "share of each response that they are", above=0, most=1)
    use_vppo_on_entropy: bool = key(
        False, "only the tokens of highest entropy get a policy gradient; with use_vppo_on_perception, either of both"
    )
    top_p_entropy_tokens: float = key(0.2, "share of each response that they are", above=0, most=1)
    use_advantage_shaping: bool = key(
        False, "VPPO: responses that depend more on their images weigh more, 1 on average over a mini-batch"
    )
    advantage_scaling_min: float = key(0.8, "weight of the response that depends least on its images", least=0, most=1)
    perception_mask: str = key(
        "patches",
        "what a dependency on images is measured against: black squares of 14 pixels, noise, blur, all grey, all black",
        choices=PERCEPTION_MASKS,
    )
    perception_mask_ratio: float = key(
        0.5, "chance of each square to be black, of perception_mask=patches", least=0, most=1
    )
    perception_kl: str = key(
        "k3", "how it is measured: k3 of the sampled token, or full = KL over all tokens", choices=PERCEPTION_KLS
    )
    use_entropy_penalty: bool = key(False, "VPPO: make sampled tokens likelier, which lowers the entropy")
    entropy_penalty_coef: float = key(0.06, "weight of that term, the mean of -log prob", least=0)
    use_pf_ppo: bool = key(False, "draw the samples of a step anew, with replacement, by their scores (PF-PPO)")
    pf_ppo: PFPPOConfig = field(default_factory=PFPPOConfig, metadata=section("how PF-PPO draws samples anew"))
    distill: DistillConfig = field(
        default_factory=DistillConfig, metadata=section("a teacher, whose distributions the policy learns")
    )
    rollout_correction: RolloutCorrectionConfig = field(
        default_factory=RolloutCorrectionConfig,
        metadata=section("where the sampler's probabilities are not the learner's; one value names a preset", PRESETS),
    )

    @property
    def refills(self) -> bool:
        """True if a step draws prompts until enough groups pass a filter."""
        return self.filter_groups.enable or self.online_filtering

    @property
    def needs_dependency(self) -> bool:
        """True if the objective looks at how much tokens depend on images."""
        return self.use_vppo_on_perception or self.use_advantage_shaping

    @property
    def selects_tokens(self) -> bool:
        """True if some tokens or responses count more in the objective than others."""
        return self.needs_dependency or self.use_vppo_on_entropy

    @property
    def compares_groups(self) -> bool:
        """True if the estimator compares the responses of a prompt with each other, so that one says nothing."""
        return not self.distill.alone and bool(self._declared("group"))

    @property
    def compares_with_reference(self) -> bool:
        """True if the estimator reads the reference's log-probs."""
        return "reference" in (self._declared("needs") or ())

    @property
    def trains_reward_model(self) -> bool:
        """True if an implicit reward model is trained with the policy."""
        return "process_rewards" in (self._declared("needs") or ())

    def _declared(self, option: str) -> Any:
        """Return an option of the decorator that registers the estimator; None if it has none."""
        name = self.adv_estimator
        if name in ADVANTAGES.declared:
            return ADVANTAGES.declared[name].options.get(option)
        return getattr(ADVANTAGES.kept(name), option, None)
