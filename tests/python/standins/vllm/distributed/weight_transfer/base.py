import abc
import dataclasses
from typing import Generic, TypeVar

TInit, TUpdate = TypeVar("TInit"), TypeVar("TUpdate")


@dataclasses.dataclass
class WeightTransferInitInfo(abc.ABC): ...


@dataclasses.dataclass
class WeightTransferUpdateInfo(abc.ABC): ...


class WeightTransferEngine(abc.ABC, Generic[TInit, TUpdate]):
    def __init__(self, config, vllm_config, device, model):
        self.config, self.vllm_config, self.device, self.model = config, vllm_config, device, model
        self.model_config = None

    def update_weights(self, update_info):
        self.receive_weights(self.update_info_cls(**update_info))

    @abc.abstractmethod
    def init_transfer_engine(self, init_info): ...

    @abc.abstractmethod
    def start_weight_update(self): ...

    @abc.abstractmethod
    def finish_weight_update(self): ...

    @abc.abstractmethod
    def receive_weights(self, update_info): ...

    @abc.abstractmethod
    def shutdown(self): ...
