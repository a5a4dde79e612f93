"""Compares two checkpoints tensor by tensor, bit by bit: compare_checkpoints.py A.pt B.pt.

Prints each difference; ends with 0 when there is none, 1 when there is, 2 when a file can't be read. Only what belongs to
the state of training counts: model, optimizer, lr_scheduler, epoch, step.
"""

import sys

import torch

COMPARED = ("model", "optimizer", "lr_scheduler", "epoch", "step")


def differences(one, other, path):
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        if one.dtype != other.dtype or one.shape != other.shape:
            yield f"{path}: {one.dtype} {tuple(one.shape)} and {other.dtype} {tuple(other.shape)}"
        elif not torch.equal(one.contiguous().view(-1).view(torch.uint8),
                             other.contiguous().view(-1).view(torch.uint8)):
            yield f"{path}: values differ by up to {(one.double() - other.double()).abs().max()}"
    elif isinstance(one, dict) and isinstance(other, dict):
        for key in sorted(set(one) | set(other), key=str):
            if key not in one or key not in other:
                yield f"{path}.{key}: only in one of the two"
            else:
                yield from differences(one[key], other[key], f"{path}.{key}")
    elif isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        if len(one) != len(other):
            yield f"{path}: {len(one)} and {len(other)} entries"
        for index, (a, b) in enumerate(zip(one, other)):
            yield from differences(a, b, f"{path}[{index}]")
    elif one != other:
        yield f"{path}: {one!r} and {other!r}"


def main():
    try:
        one, other = (torch.load(path, weights_only=True) for path in sys.argv[1:3])
    except Exception as error:  # whatever torch.load raises
        print(f"read {sys.argv[1:3]}: {error}")
        return 2
    if not one.get("model") or not other.get("model"):
        print("no model in a checkpoint")
        return 2
    found = [text for key in COMPARED for text in differences(one.get(key), other.get(key), key)]
    print("\n".join(found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
