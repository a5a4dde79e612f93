"""torchvision's data path alone, for scripts/bench data: ImageFolder, the usual transforms, DataLoader.

Prints a line of JSON: images_per_second and images_per_cpu_second (workers counted), of one pass over
the training folder, the start of the workers left out. With --make N it writes N JPEGs of 500 x 375
there first, in ten classes, with the detail of photographs."""

import argparse
import json
import pathlib
import resource
import time

import numpy as np
import torch
from PIL import Image
from torchvision import transforms
from torchvision.datasets import ImageFolder

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def make(folder, count):
    """About 60 kB each at quality 90: smooth noise on several scales."""
    random = np.random.default_rng(0)
    for split, pictures in (("train", count), ("val", 10)):
        for i in range(pictures):
            picture = np.zeros((375, 500, 3))
            for step, strength in ((64, 60), (16, 30), (4, 14), (1, 4)):
                small = random.normal(0, strength, (375 // step + 2, 500 // step + 2, 3))
                grown = [np.asarray(Image.fromarray(small[..., c].astype(np.float32)).resize((500, 375), Image.BICUBIC))
                         for c in range(3)]
                picture += np.stack(grown, axis=-1)
            place = folder / split / f"class{i % 10}"
            place.mkdir(parents=True, exist_ok=True)
            pixels = np.clip(picture + 128, 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(place / f"{i:05}.jpg", "JPEG", quality=90)


def cpu_seconds():
    return sum(u.ru_utime + u.ru_stime for u in map(resource.getrusage,
                                                     (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--make", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--augment", choices=["none", "standard"], default="standard")
    options = parser.parse_args()
    if options.make:
        make(options.folder, options.make)
        return
    torch.set_num_threads(1)
    cut = {
        "standard": [transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip()],
        "none": [transforms.Resize(256), transforms.CenterCrop(224)],
    }[options.augment]
    data = ImageFolder(options.folder / "train",
                       transforms.Compose([*cut, transforms.ToTensor(), transforms.Normalize(MEAN, STD)]))
    loader = torch.utils.data.DataLoader(data, options.batch_size, shuffle=True, num_workers=options.workers)
    cpu_begin = cpu_seconds()
    images, begin, first = 0, None, 0
    for pictures, _ in loader:
        if begin is None:
            begin, first = time.monotonic(), len(pictures)
        images += len(pictures)
    wall = time.monotonic() - begin
    del loader
    cpu = cpu_seconds() - cpu_begin
    print(json.dumps({"images_per_second": (images - first) / wall, "images_per_cpu_second": images / cpu}))


main()
