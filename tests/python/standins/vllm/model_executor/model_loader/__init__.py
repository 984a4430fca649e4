from .base_loader import BaseModelLoader

LOADERS = {}


def register_model_loader(load_format):
    def add(loader):
        assert issubclass(loader, BaseModelLoader)
        LOADERS[load_format] = loader
        return loader

    return add
