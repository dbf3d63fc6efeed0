"""Rows below `megatron` of actor, reference and critic: the meaning survives, the machinery does not."""

from __future__ import annotations

from whet.compat.keys.row import Row, absent, harmless, mapped

FOLLOWS = "the reference follows the actor here"
ROUTING = (
    "replaying the learner's own routing between updates (R2) is not here; set it to disabled, or to R3 beside "
    "worker.rollout.replay_routing=true, which replays the sampler's"
)


def megatron_rows(part: str) -> list[Row]:
    """Rows below `megatron`: the meaning survives, the machinery does not."""
    to = f"worker.{part}"
    learns = part == "actor"
    return [
        *(
            mapped(
                "tensor_model_parallel_size expert_model_parallel_size expert_tensor_parallel_size",
                f"{to}.tensor_parallel_size",
                "devices that each have a part of every layer, and of its experts",
                rule="megatron",
            )
            if learns
            else harmless(
                "tensor_model_parallel_size expert_model_parallel_size expert_tensor_parallel_size",
                f"the {part} is not cut by layers here: its devices share shards instead",
            )
        ),
        *(
            mapped(
                "context_parallel_size", f"{to}.ulysses_size", "another algorithm, the same meaning", rule="megatron"
            )
            if part in ("actor", "critic")
            else harmless("context_parallel_size", FOLLOWS)
        ),
        *mapped("param_offload", f"{to}.offload.offload_params", given=True),
        *mapped("dtype", f"{to}.fsdp.mp_param_dtype", value="dtype", given=True),
        *(
            mapped("optimizer_offload", f"{to}.offload.offload_optimizer", rule="offload")
            if part != "ref"
            else harmless("optimizer_offload", "the reference has no optimizer")
        ),
        *(
            mapped(
                "override_transformer_config.recompute_granularity",
                f"{to}.model.enable_gradient_checkpointing",
                "full and selective = true",
                rule="megatron",
            )
            if learns
            else harmless("override_transformer_config.recompute_granularity", "memory only")
        ),
        *absent(
            "override_transformer_config.moe_aux_loss_coeff override_transformer_config.moe_z_loss_coeff",
            "losses of the router are not here; set it to 0",
            (0,),
        ),
        *absent("override_transformer_config.freeze_moe_router", "a frozen router is not here", (False,)),
        *absent("override_transformer_config.mtp_*", "multi-token prediction is not here", (0, None)),
        *absent("qat.enable", "quantization-aware training is not here; set it to False"),
        *absent("router_replay.mode", ROUTING, ("disabled", "R3")),
        *harmless(
            "pipeline_model_parallel_size virtual_pipeline_model_parallel_size",
            "no pipeline here: those devices share the batch and the shards instead",
        ),
        *harmless(
            "dist_checkpointing_path use_dist_checkpointing",
            "weights are read from model.path; a path in Megatron's format is not",
        ),
        *harmless("*", "how Megatron is set up there: no numbers depend on it"),
    ]
