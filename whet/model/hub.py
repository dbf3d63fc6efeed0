"""Ask the hub for a model once, before transformers does: without a network it asks six times for each file."""

from __future__ import annotations

from huggingface_hub import get_hf_file_metadata, hf_hub_url, try_to_load_from_cache
from huggingface_hub.errors import (
    EntryNotFoundError,
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    RepositoryNotFoundError,
)

from whet.errors import UserError


def check_reachable(name: str) -> None:
    """Raise a `UserError` for a hub id that is not in the cache where the hub cannot be asked, or has no such model."""
    try:
        if try_to_load_from_cache(name, "config.json") is not None:
            return
        get_hf_file_metadata(hf_hub_url(name, "config.json"))
    except GatedRepoError as error:
        raise UserError(f"{name} is gated: accept its terms on the hub, then run `hf auth login`") from error
    except RepositoryNotFoundError as error:
        raise UserError(
            f"{name} is no folder here, and the hub has no such model that you may read; see how it is spelt, or run "
            "`hf auth login` for a private one"
        ) from error
    except (EntryNotFoundError, HfHubHTTPError, HFValidationError):  # transformers asks again, and says it better
        return
    except Exception as error:  # whichever HTTP library the hub's client uses
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise UserError(
            f"{name} is no folder here and not in the hub's cache, and the hub cannot be asked ({reason}). Name a "
            f"model folder, or fetch the model where there is a network: hf download {name}"
        ) from error
