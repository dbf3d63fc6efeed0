"""`Plan`: memory, time and cost of a run, made from its config, a machine and the number of devices."""

from __future__ import annotations

from dataclasses import dataclass, replace

from transformers import PretrainedConfig

from whet.config import Config, with_values
from whet.planning.machines import Machine
from whet.planning.memory import Memory, Subject, plan_memory, policy_size
from whet.planning.models import find_config
from whet.planning.shapes import Shape, shape_of
from whet.planning.times import Times, plan_times
from whet.planning.workload import devices_of, workload_of

MODEL = "worker.actor.model.model_path"


@dataclass(frozen=True, slots=True)
class Question:
    """Everything that a plan depends on."""

    config: Config
    machine: Machine
    prompt_mean: float | None = None
    response_mean: float | None = None
    lengths: str = "geometric"
    price: float | None = None  # of a device and hour

    def changed(self, values: dict[str, object]) -> Question:
        """Return the question with other values of some keys."""
        config = with_values(self.config, values)
        prompt = None if self.prompt_mean is None else min(self.prompt_mean, config.data.max_prompt_length)
        response = None if self.response_mean is None else min(self.response_mean, config.data.max_response_length)
        return replace(self, config=config, prompt_mean=prompt, response_mean=response)


@dataclass(frozen=True, slots=True)
class Plan:
    """Answer to a question."""

    question: Question
    name: str
    model: PretrainedConfig
    subject: Subject
    memory: Memory
    times: Times

    @property
    def shape(self) -> Shape:
        """Sizes of the model."""
        return self.subject.shape

    @property
    def step_cost(self) -> float | None:
        """Price of a step on all devices, where a price was given."""
        price = self.question.price
        return None if price is None else price * self.subject.devices.count * self.times.step / 3600


def make_plan(question: Question) -> Plan:
    """Plan a run; a `UserError` where its model is not known or cannot be trained as configured."""
    name, model = find_config(question.config.worker.actor.model.model_path or "")
    return plan_model(question, name, model, shape_of(model))


def plan_model(question: Question, name: str, model: PretrainedConfig, shape: Shape) -> Plan:
    """Plan a run of a model whose config was read before."""
    config, machine = question.config, question.machine
    devices = devices_of(config)
    work = workload_of(config, machine.is_cpu, question.prompt_mean, question.response_mean)
    size = policy_size(config, model, shape, machine, devices)
    subject = Subject(config, shape, size, machine, devices, work)
    memory = plan_memory(subject)
    return Plan(question, name, model, subject, memory, plan_times(subject, memory, question.lengths))
