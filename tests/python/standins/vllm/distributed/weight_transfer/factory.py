from .base import WeightTransferEngine


class WeightTransferEngineFactory:
    registry = {}

    @classmethod
    def register_engine(cls, name, engine):
        assert issubclass(engine, WeightTransferEngine)
        cls.registry[name] = engine
