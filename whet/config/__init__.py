"""One typed schema, one loader, one place for defaults and for cross-key checks."""

from whet.config.check import check_config, check_critic, val_rollout
from whet.config.check_recipes import draws_allowed, refills
from whet.config.files import check_files, local_name, resolve_path, run_folder
from whet.config.load import load_config
from whet.config.schema import Config
from whet.config.spelling import nearest
from whet.config.stages import Stage, read_stages

__all__ = [
    "Config",
    "Stage",
    "check_config",
    "check_critic",
    "check_files",
    "draws_allowed",
    "load_config",
    "local_name",
    "nearest",
    "read_stages",
    "refills",
    "resolve_path",
    "run_folder",
    "val_rollout",
]
