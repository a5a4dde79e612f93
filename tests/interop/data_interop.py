"""The trainer's data path beside PIL and torchvision: the same pictures, listed, decoded, cut, resized
and normalised. The first argument is data_probe. Pictures are made here, from a seed.

What must hold: pixels and resized pixels within one of 255 levels (they are equal on libjpeg-turbo's
exact path, and a share of differing bytes is printed); the order of files torchvision's; random crops
with torchvision's distribution.
"""

import pathlib
import struct
import subprocess
import sys
import tempfile
import traceback
import warnings
import zlib

import numpy as np
import torch
from PIL import Image
from torchvision import transforms
from torchvision.datasets import ImageFolder
from torchvision.transforms import functional

PROBE = sys.argv[1]
CASES = []
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def case(function):
    CASES.append(function)
    return function


def expect(condition, what):
    if not condition:
        raise AssertionError(what)


def probe(*words):
    ran = subprocess.run([PROBE, *map(str, words)], capture_output=True, timeout=60)
    expect(ran.returncode == 0, f"{words}: {ran.stderr.decode()}")
    return ran.stdout


def make_picture(width, height, seed=0):
    """Slopes, edges and noise."""
    random = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width]
    planes = [
        128 + 90 * np.sin(x / (7 + seed % 5)) * np.cos(y / 11),
        (x * 3 + y * 2 + seed * 40) % 256,
        255 * ((x // 9 + y // 6) % 2),
    ]
    pixels = np.stack(planes, axis=-1) + random.normal(0, 12, (height, width, 3))
    return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))


def decoded(path):
    out = probe("decode", path)
    width, height = struct.unpack("<II", out[:8])
    return np.frombuffer(out[8:], np.uint8).reshape(height, width, 3)


def floats(out, size):
    return torch.frombuffer(bytearray(out), dtype=torch.float32).reshape(3, size, size)


def compare(ours, theirs, what, levels=1):
    difference = np.abs(ours.astype(int) - theirs.astype(int))
    share = np.count_nonzero(difference) / difference.size
    print(f"        {what}: largest difference {difference.max()}, {100 * share:.4f} % differ")
    expect(difference.max() <= levels, f"{what}: differs by {difference.max()} levels")


JPEGS = {
    "420": dict(quality=90, subsampling=2),
    "422": dict(quality=75, subsampling=1),
    "444": dict(quality=95, subsampling=0),
    "420 progressive": dict(quality=85, subsampling=2, progressive=True),
    "420 restarts": dict(quality=85, subsampling=2, restart_marker_rows=1),
}


def jpegs(folder):
    for i, (name, options) in enumerate(JPEGS.items()):
        for size in ((500, 375), (333, 500), (64, 48)):
            path = folder / f"{name} {size[0]}.jpg"
            make_picture(*size, seed=i).save(path, "JPEG", **options)
            yield path


@case
def jpeg_pixels_are_pils(folder):
    for path in jpegs(folder):
        compare(decoded(path), np.asarray(Image.open(path).convert("RGB")), path.name)


@case
def grey_cmyk_and_rotated_jpegs_are_pils(folder):
    picture = make_picture(130, 90)
    exif = Image.Exif()
    exif[0x0112] = 6  # rotate by 90 degrees, which neither does
    picture.convert("L").save(folder / "grey.jpg", "JPEG", quality=90)
    picture.convert("CMYK").save(folder / "cmyk.jpg", "JPEG", quality=90)
    picture.save(folder / "rotated.jpg", "JPEG", quality=90, exif=exif)
    for name in ("grey", "cmyk", "rotated"):
        path = folder / f"{name}.jpg"
        theirs = np.asarray(Image.open(path).convert("RGB"))
        compare(decoded(path), theirs, name)
        expect(theirs.shape == (90, 130, 3), name)


def png_16_bit(path, color_type, values):
    """PIL writes no 16-bit colour."""
    height, width, channels = values.shape
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in values)
    chunk = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    header = struct.pack(">IIBBBBB", width, height, 16, color_type, 0, 0, 0)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) +
                     chunk(b"IEND", b""))


@case
def png_pixels_are_pils(folder):
    picture = make_picture(61, 47)
    alpha = Image.fromarray(np.random.default_rng(1).integers(0, 256, (47, 61), dtype=np.uint8))
    with_alpha = picture.convert("RGBA")
    with_alpha.putalpha(alpha)
    palette = picture.quantize(37)
    palette.info["transparency"] = 3
    for name, image in {
        "rgb": picture, "rgba": with_alpha, "grey": picture.convert("L"), "grey alpha": with_alpha.convert("LA"),
        "palette": picture.quantize(200), "palette 4 bit": picture.quantize(9), "palette transparent": palette,
        "1 bit": picture.convert("1"),
    }.items():
        image.save(folder / f"{name}.png", **({"transparency": 3} if "transparent" in name else {}))
    random = np.random.default_rng(2)
    for name, kind, channels in (("16 grey", 0, 1), ("16 rgb", 2, 3), ("16 grey alpha", 4, 2), ("16 rgba", 6, 4)):
        values = random.integers(0, 65536, (47, 61, channels))
        values[:20] //= 257  # small ones too
        png_16_bit(folder / f"{name}.png", kind, values)
    for path in sorted(folder.glob("*.png")):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            theirs = np.asarray(Image.open(path).convert("RGB"))
        compare(decoded(path), theirs, path.name, levels=0)


@case
def evaluated_pictures_are_torchvisions(folder):
    theirs = transforms.Compose([transforms.Resize(256), transforms.CenterCrop(224), transforms.ToTensor(),
                                 transforms.Normalize(MEAN, STD)])
    for path in jpegs(folder):
        ours = floats(probe("centre", path, 224), 224)
        wanted = theirs(Image.open(path).convert("RGB"))
        level = (ours - wanted).abs() * torch.tensor(STD).view(3, 1, 1) * 255
        share = (level > 0.5).float().mean().item()
        print(f"        {path.name}: largest difference {level.max():.3f} levels, {100 * share:.4f} % differ")
        expect(level.max() <= 1.001, path.name)


@case
def cut_and_resized_pictures_are_torchvisions(folder):
    random = np.random.default_rng(3)
    for path in jpegs(folder):
        picture = Image.open(path).convert("RGB")
        for _ in range(6):
            width, height = (int(random.integers(1, side + 1)) for side in picture.size)
            left = int(random.integers(0, picture.width - width + 1))
            top = int(random.integers(0, picture.height - height + 1))
            flip, size = int(random.integers(0, 2)), int(random.integers(1, 240))
            ours = floats(probe("crop", path, left, top, width, height, size, flip, 0), size)
            wanted = functional.resized_crop(picture, top, left, height, width, [size, size])
            wanted = functional.hflip(wanted) if flip else wanted
            level = (ours - functional.to_tensor(wanted)).abs() * 255
            expect(level.max() <= 1.001, f"{path.name} {left} {top} {width} {height} to {size}: {level.max()}")


@case
def what_scaled_decoding_costs(folder):
    """A measurement for docs/data.md, with a bound that a mistake would break."""
    path = folder / "large.jpg"
    make_picture(1000, 800).resize((2000, 1600), Image.BICUBIC).save(path, "JPEG", quality=90)
    picture = Image.open(path).convert("RGB")
    for side, denominator in ((1000, 4), (700, 2)):
        ours = floats(probe("crop", path, 201, 103, side, side, 224, 0, 1), 224)
        wanted = functional.to_tensor(functional.resized_crop(picture, 103, 201, side, side, [224, 224]))
        level = (ours - wanted).abs() * 255
        print(f"        1/{denominator}: mean {level.mean():.2f}, largest {level.max():.0f} levels")
        expect(0.0 < level.mean() < 4.0, "scaled decoding is off")


@case
def files_are_listed_as_image_folder_does(folder):
    for name in ("b/2.jpg", "b/10.JPEG", "B/x.png", "a/z.jpg", "a/s/1.jpg", "a/s-2/0.jpg", "a/A.PNG", "a/s/t/9.bmp",
                 "é/1.jpg", "z z/1 2.webp", "a/.hidden.jpg", "a/x.gif", "a/y.txt", "top.jpg", ".class/1.jpg"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"")
    wanted = [f"{path} {label}" for path, label in ImageFolder(str(folder)).samples]
    ours = probe("list", folder).decode().splitlines()
    expect(ours == wanted, f"{ours}\nis not\n{wanted}")


@case
def random_crops_have_torchvisions_distribution(folder):
    count = 20000
    for width, height in ((500, 375), (300, 900)):
        lines = probe("plans", width, height, count).decode().splitlines()
        ours = np.array([[int(word) for word in line.split()] for line in lines], float)
        torch.manual_seed(0)
        picture = torch.empty(3, height, width)
        wanted = np.array([transforms.RandomResizedCrop.get_params(picture, (0.08, 1.0), (3 / 4, 4 / 3))
                           for _ in range(count)], float)
        for i, name in enumerate(("top", "left", "height", "width")):
            # Deciles: for 20,000 draws each lies within 2 % of the side but once in a million.
            a, b = (np.quantile(x[:, i], np.linspace(0.1, 0.9, 9)) for x in (ours, wanted))
            side = height if name in ("top", "height") else width
            expect(np.abs(a - b).max() < 0.02 * side, f"{width} x {height}, {name}: {a} and {b}")


@case
def cut_off_files_are_refused_where_pil_refuses(folder):
    path = folder / "x.jpg"
    make_picture(200, 150).save(path, "JPEG", quality=90)
    whole = path.read_bytes()
    for size in (0, 1, 100, len(whole) // 3, len(whole) // 2, len(whole) - 200):
        path.write_bytes(whole[:size])
        try:
            Image.open(path).convert("RGB")
            pil = True
        except OSError:
            pil = False
        ours = subprocess.run([PROBE, "decode", str(path)], capture_output=True, timeout=60).returncode == 0
        expect(not pil and not ours, f"{size} of {len(whole)} bytes: PIL {pil}, ours {ours}")


def main():
    failed = 0
    torch.set_num_threads(1)
    for function in CASES:
        try:
            with tempfile.TemporaryDirectory() as folder:
                function(pathlib.Path(folder))
            print(f"ok      {function.__name__}", flush=True)
        except Exception:  # noqa: BLE001: every failure is reported and counted
            failed += 1
            print(f"FAILED  {function.__name__}", flush=True)
            traceback.print_exc()
    print(f"{len(CASES) - failed} passed, {failed} failed", flush=True)
    sys.exit(1 if failed else 0)


main()
