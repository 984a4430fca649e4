"""A list of tensors through a queue to another process, which has them after the sender has ended.

It needs a daemon and PyTorch:

    python3 examples/python/torch_queue.py
"""

import torch

import gpubufd.torch.multiprocessing as mp  # in the place of torch.multiprocessing


def send(queue: "mp.Queue[list[torch.Tensor]]") -> None:
    queue.put([torch.full((1000, 1000), float(i)) for i in range(10)])
    queue.close()
    queue.join_thread()


def main() -> None:
    context = mp.get_context("spawn")
    queue = context.Queue()
    sender = context.Process(target=send, args=(queue,))
    sender.start()
    sender.join()  # with torch.multiprocessing its memory would be gone
    tensors = queue.get()
    print(f"{len(tensors)} tensors of a process that has ended, whose sum is {sum(float(one.sum()) for one in tensors):,.0f}")


if __name__ == "__main__":
    main()
