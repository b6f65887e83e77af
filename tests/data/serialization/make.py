"""Writes the files beside it: safetensors, torch archives and pickles as Python's own libraries write them.

Run with torch 2.11 and safetensors 0.8: python make.py
"""

import collections
import io
import os
import pickle
import zipfile

import torch
from safetensors.torch import save_file

os.chdir(os.path.dirname(os.path.abspath(__file__)))

# --- safetensors ---
dtypes = [
    torch.uint64, torch.int64, torch.float64, torch.complex64, torch.float32, torch.uint32, torch.int32,
    torch.bfloat16, torch.float16, torch.uint16, torch.int16, torch.float8_e5m2fnuz, torch.float8_e4m3fnuz,
    torch.float8_e8m0fnu, torch.float8_e4m3fn, torch.float8_e5m2, torch.int8, torch.uint8,
    torch.float4_e2m1fn_x2,
]
tensors = {
    "t_" + str(dtype).split(".")[1]: torch.arange(1, 17, dtype=torch.uint8).view(dtype).clone() for dtype in dtypes
}
tensors["t_bool"] = torch.tensor([True, False, True])
tensors["empty"] = torch.zeros(0)
tensors["empty_matrix"] = torch.zeros(2, 0, 3)
tensors["scalar"] = torch.tensor(1.5)
tensors['quote" slash\\ tab\t bell\x07 \u00e9\u4e2d'] = torch.arange(6.0).view(2, 3)
save_file(tensors, "all_types.safetensors", {"format": "pt"})

# --- torch archives: the same state dictionary in each form ---
torch.manual_seed(0)
module = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3, bias=False), torch.nn.BatchNorm2d(4), torch.nn.Linear(5, 2))
state = module.state_dict()
save_file(state, "state_dict.safetensors")
torch.save(state, "state_dict_zip.pt")
torch.save(state, "state_dict_legacy.pt", _use_new_zipfile_serialization=False)
torch.save(
    collections.OrderedDict((name, torch.nn.Parameter(value) if value.is_floating_point() else value)
                            for name, value in state.items()),
    "state_dict_parameters.pt",
)
torch.serialization.set_crc32_options(False)
torch.save(state, "state_dict_without_checksums.pt")
torch.serialization.set_crc32_options(True)
with zipfile.ZipFile("state_dict_zip.pt") as source, zipfile.ZipFile(
    "state_dict_compressed.pt", "w", zipfile.ZIP_DEFLATED
) as target:
    for member in source.infolist():
        target.writestr(member.filename, source.read(member.filename))
with zipfile.ZipFile("state_dict_zip.pt") as source, zipfile.ZipFile("state_dict_rezipped.pt", "w") as target:
    for member in source.infolist():
        target.writestr(member.filename.replace("state_dict_zip/", "other/"), source.read(member.filename))
with zipfile.ZipFile("state_dict_zip.pt") as source, zipfile.ZipFile("big_endian.pt", "w") as target:
    for member in source.infolist():
        content = source.read(member.filename)
        target.writestr(member.filename, b"big" if member.filename.endswith("byteorder") else content)

# --- shared storages, views, strides, every dtype ---
base = torch.arange(24.0).view(4, 6)
odd = {
    "base": base,
    "row": base[1],
    "column": base[:, 2],
    "transposed": base.t(),
    "expanded": torch.tensor([[1.0], [2.0]]).expand(2, 3),
    "channels_last": torch.arange(24.0).view(1, 2, 3, 4).contiguous(memory_format=torch.channels_last),
    "scalar": torch.tensor(7, dtype=torch.int64),
    "empty": torch.zeros(0, 3),
    "bool": torch.tensor([True, False]),
}
for dtype in [torch.float16, torch.bfloat16, torch.float64, torch.int8, torch.int16, torch.int32, torch.uint8,
              torch.uint16, torch.uint32, torch.uint64, torch.float8_e4m3fn, torch.float8_e5m2, torch.complex64]:
    odd[str(dtype)] = torch.arange(8, dtype=torch.uint8).view(dtype).clone()
torch.save(odd, "tensors.pt")
torch.save(odd, "tensors_legacy.pt", _use_new_zipfile_serialization=False)
save_file({name: value.contiguous().clone() for name, value in odd.items()}, "tensors.safetensors")

# --- plain values ---
values = {
    "none": None, "true": True, "false": False, "float": 0.1, "text": "caf\u00e9", "again": "caf\u00e9",
    "ints": [0, 255, 256, 65535, 65536, -1, 2**31 - 1, -(2**31), 2**31, -(2**31) - 1, 2**40, 2**63 - 1, -(2**63)],
    "tuples": ((), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)),
    "empty": [[], {}],
    "nested": {"one": [1.5]},
}
torch.save(values, "values.pt")
torch.save([[n] for n in range(300)], "long_memo.pt")
for name, value in {
    "list_0": [], "list_1": [7], "list_2": [7, 8], "list_1000": list(range(1000)), "list_1001": list(range(1001)),
    "dict_0": {}, "dict_1": {"0": 0}, "dict_1000": {str(n): n for n in range(1000)},
    "dict_1001": {str(n): n for n in range(1001)},
    "ordered_0": collections.OrderedDict(),
    "ordered_1": collections.OrderedDict({"0": 0}),
    "ordered_1000": collections.OrderedDict((str(n), n) for n in range(1000)),
    "ordered_1001": collections.OrderedDict((str(n), n) for n in range(1001)),
    "ordered_1002": collections.OrderedDict((str(n), n) for n in range(1002)),
}.items():
    with open(f"{name}.pkl", "wb") as file:
        pickle.dump(value, file, protocol=2)
for protocol in range(2, 6):
    with open(f"protocol_{protocol}.pkl", "wb") as file:
        pickle.dump({**values, "bytes": b"\x00a\x80\xff", "big": 2**70,
                     "ordered": collections.OrderedDict(a=1)}, file, protocol=protocol)
with open("protocol_0.pkl", "wb") as file:
    pickle.dump([1], file, protocol=0)


# --- what must be refused ---
class Evil:
    def __reduce__(self):
        return os.system, ("true",)


torch.save({"weight": Evil()}, "evil.pt")
torch.save({"weight": Evil()}, "evil_legacy.pt", _use_new_zipfile_serialization=False)
torch.save({"model": {"weight": torch.zeros(1)}}, "not_flat.pt")
with open("not_torch.pkl", "wb") as file:
    pickle.dump({"a": 1}, file, protocol=2)
