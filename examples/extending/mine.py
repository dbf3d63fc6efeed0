"""An advantage and a policy loss of your own, without touching whet.

    whet train config=examples/extending/mine.yaml

The config names this file in `algorithm.extensions`. It is run before training starts; each decorator gives a function
the name by which `algorithm.adv_estimator` or `worker.actor.loss_type` chooses it. That is all there is to it.

Shapes are in the names: B responses, T tokens of the longest of them. `mask_BT` is 1 where the model wrote the token
and 0 elsewhere (padding, what a tool answered); nothing outside the mask means anything. What a function returns is
checked while it runs, so a wrong shape or a NaN stops the run with its name instead of spoiling the weights.
"""

import torch

import whet


# An advantage says for every token how much better than expected it was: what is positive becomes more likely, what is
# negative less. It gets `signals` (the fields are described at whet.Signals) and `config`, the section `algorithm`.
#
# This one compares a response with the median of its prompt's responses instead of their mean: one lucky response
# among many failures then does not make the others look worse than they were.
#
# An advantage that needs more says so: @whet.advantage("mine", needs=("baselines",)) has a greedy response to every
# prompt scored and finds the scores in signals.baselines_B; "values" trains a critic, "sum_pi_squared" is Σ π².
@whet.advantage("median")
def median(signals, config):
    scores_B = signals.rewards_BT.sum(dim=1)  # the score sits on the last token, KL penalties on all
    advantages_B = torch.zeros_like(scores_B)
    for group in signals.groups_B.unique():  # rows with the same number answer the same prompt
        rows = signals.groups_B == group
        advantages_B[rows] = scores_B[rows] - scores_B[rows].quantile(0.5)
    advantages_BT = advantages_B[:, None] * signals.mask_BT
    return advantages_BT, advantages_BT  # advantages, and the returns that a critic would learn


# A policy loss turns advantages and log-probs into the number whose gradient is followed. It gets `inputs` (described
# at whet.LossInputs), `config`, the section `worker.actor`, and `aggregate`, which averages over the whole mini-batch
# in the mode of `worker.actor.loss_avg_mode`. Always end with it: a mean of your own would depend on how the
# mini-batch was cut into micro-batches.
#
# This one is the policy gradient with a ratio that fades out smoothly instead of being clipped: far from the policy
# that sampled, a token loses its influence.
@whet.policy_loss("fading")
def fading(inputs, config, aggregate):
    log_ratio = inputs.log_ratio  # log π − log π_old; carries the gradient through inputs.log_probs_BT
    width = config.clip_ratio_high
    influence = torch.exp(-0.5 * (log_ratio.detach() / width) ** 2)
    loss_BT = -inputs.advantages_BT * influence * log_ratio.exp()
    loss = aggregate(inputs.weighted(loss_BT), inputs.mask_BT)
    return loss, {"influence": aggregate.token_mean(influence, inputs.mask_BT)}  # logged as actor/influence
