"""Policy losses; importing this package registers them."""

from whet.algos.losses import cispo, clip_cov, dppo_kl, dppo_tv, dro, geo_mean, gpg, gspo, gspo_token, kl_cov, ppo, sapo

__all__ = [
    "cispo",
    "clip_cov",
    "dppo_kl",
    "dppo_tv",
    "dro",
    "geo_mean",
    "gpg",
    "gspo",
    "gspo_token",
    "kl_cov",
    "ppo",
    "sapo",
]
