"""Running mean rewards of roles, for self-play (RAE; Liu et al., 2025, SPIRAL)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from whet.config.schema.algorithm import AlgorithmConfig
from whet.data.columns import MISSING, lookup
from whet.errors import UserError
from whet.types import Group, Prompt

BASELINE = "role_baseline"  # the score under which the estimator finds an episode's baseline


class RoleBaselines:
    """b ← α·b + (1 − α)·R after each episode of a role, α `algorithm.rae_decay`; 0 before the first."""

    def __init__(self, config: AlgorithmConfig) -> None:
        self._column, self._decay = config.rae_key, config.rae_decay
        self.baselines: dict[str, float] = {}

    def observe(self, groups: Sequence[Group]) -> None:
        """Take in episodes in their order; each gets the baseline of the role's earlier ones as a score."""
        for sample in (sample for group in groups for sample in group.samples):
            role = self._role(sample.prompt)
            baseline = sample.scores[BASELINE] = self.baselines.get(role, 0.0)
            self.baselines[role] = self._decay * baseline + (1.0 - self._decay) * sample.reward

    def metrics(self) -> dict[str, float]:
        """Return the baseline of every role."""
        return {f"rae/{role}": value for role, value in self.baselines.items()}

    def _role(self, prompt: Prompt) -> str:
        """Return game and role of a row: `data_source`, if there is one, and the column that `rae_key` names."""
        role, game = (lookup(prompt.extra, name) for name in (self._column, "data_source"))
        if role is MISSING or role is None:
            raise UserError(
                f"{prompt.uid}: has no column {self._column}, which algorithm.rae_key names for the role that is "
                "played; add it to the rows, or name another"
            )
        return str(role) if game is MISSING or game is None else f"{game}/{role}"

    def state_dict(self) -> dict[str, Any]:
        """Return the baselines."""
        return dict(self.baselines)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from `state`."""
        self.baselines = {str(role): float(value) for role, value in state.items()}
