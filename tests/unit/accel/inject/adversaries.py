"""Attention whose rewriting would be wrong if one thing about it were overlooked.

Each is the body of `attend(q, k, v, mask, bias)`, with what comes before it in the module.
"""

from __future__ import annotations

HEAD = (
    "import math\nimport torch\nfrom torch import einsum, nn\nimport torch.nn.functional as F\n"
    "KEPT = []\n"
)
BODIES = {
    "mask inverted twice": """
a = q @ k.mT
hidden = ~mask
a = a.masked_fill(~(~hidden), float("-inf"))
return a.softmax(-1) @ v""",
    "mask where visible": """
a = q @ k.mT
a = torch.where(mask, a, -1e9).masked_fill(mask.logical_not(), -1e9)
return a.softmax(-1) @ v""",
    "scale after the mask makes it soft": """
a = (q @ k.mT).masked_fill(~mask, -1e4) * 1e-3
return a.softmax(-1) @ v""",
    "negative scale after the mask": """
a = (q @ k.mT).masked_fill(~mask, -1e5) * -1.0
return a.softmax(-1) @ v""",
    "soft mask": """
a = (q @ k.mT).masked_fill(~mask, -3.0)
return a.softmax(-1) @ v""",
    "positive infinity is replaced later": """
a = (q @ k.mT).masked_fill(~mask, 20.0)
return a.softmax(-1) @ v""",
    "a shift below the fill": """
a = q @ k.mT - 1e6
a = a.masked_fill(~mask, -1e5)
return a.softmax(-1) @ v""",
    "a bias below the fill": """
a = q @ k.mT + bias * 1e6
a = a.masked_fill(~mask, -1e4)
return a.softmax(-1) @ v""",
    "softmax over the queries": """
a = (q @ k.mT).masked_fill(~mask, -1e9)
return a.softmax(-2) @ v""",
    "softmax over the heads": """
return ((q @ k.mT) * 0.3).softmax(1) @ v""",
    "softmax over queries and keys": """
a = q @ k.mT
return a.flatten(2).softmax(-1).view_as(a) @ v""",
    "weights transposed before the values": """
return (q @ k.mT).softmax(-1).transpose(-1, -2) @ v""",
    "transposed, then normalised": """
a = (q @ k.mT).transpose(-2, -1) * 0.5
return a.softmax(-1) @ v""",
    "heads and queries exchanged": """
a = (q @ k.mT).transpose(1, 2)
return (a.softmax(-1).transpose(1, 2) if a.shape[1] > 1 else a.softmax(-1)) @ v""",
    "a view that mixes heads and queries": """
a = q @ k.mT
b, h, s, t = a.shape
a = a.reshape(b, s, h, t).softmax(-1).reshape(b, h, s, t)
return a @ v""",
    "a view that mixes keys": """
a = q @ k.mT
b, h, s, t = a.shape
return a.reshape(b, h, s, t // 2, 2).softmax(-1).reshape(b, h, s, t) @ v""",
    "a mask that is changed later": """
hidden = ~mask
a = (q @ k.mT).masked_fill(hidden, -1e9)
other = hidden.view(-1)
other.zero_()
return a.softmax(-1) @ v""",
    "queries that are changed through a view": """
x = q * 1.0
y = x.view(-1)
a = x @ k.mT
y.mul_(2.0)
return a.softmax(-1) @ v""",
    "a bias that is changed later": """
b = bias * 1.0
alias = [b]
a = q @ k.mT + b
alias[0] += 5.0 * torch.arange(b.shape[-1])
return a.softmax(-1) @ v""",
    "values that are changed between": """
x = v * 1.0
a = (q @ k.mT).softmax(-1)
x *= 3.0
return a @ x""",
    "scores changed through a second name": """
a = q @ k.mT
b = a
b.mul_(mask)
return a.softmax(-1) @ v""",
    "scores changed through a view": """
a = q @ k.mT
a.transpose(-1, -2).add_(bias)
return a.softmax(-1) @ v""",
    "scores changed in a container": """
box = {"scores": q @ k.mT}
box["scores"] *= 0.1
return box["scores"].softmax(-1) @ v""",
    "weights changed after the softmax": """
w = (q @ k.mT).softmax(-1)
w *= mask
return w @ v""",
    "the diagonal is emptied": """
w = (q @ k.mT).softmax(-1)
w[..., 0] = 0
return w @ v""",
    "dropout in a variable that is not 0": """
p = 0.5
torch.manual_seed(1)
return F.dropout((q @ k.mT).softmax(-1), p) @ v""",
    "dropout that is always on": """
torch.manual_seed(1)
return F.dropout((q @ k.mT).softmax(-1), p=0.25, training=True) @ v""",
    "dropout of scores": """
torch.manual_seed(1)
return F.dropout(q @ k.mT, 0.3, True).softmax(-1) @ v""",
    "torch is another name": """
class torch:
    @staticmethod
    def matmul(x, y):
        return x @ y * 3.0
a = torch.matmul(q, k.mT)
return a.softmax(-1) @ v""",
    "an argument shadows an import": """
def inner(F, a):
    return F.softmax(a, -1)
class F2:
    @staticmethod
    def softmax(x, dim):
        return x.softmax(-2)
return inner(F2, q @ k.mT) @ v""",
    "scores are rounded": """
a = (q @ k.mT).round()
return a.softmax(-1) @ v""",
    "scores become whole numbers": """
a = (q @ k.mT).to(torch.int32).float()
return a.softmax(-1) @ v""",
    "a factor for each key": """
a = (q @ k.mT) * torch.arange(k.shape[-2])
return a.softmax(-1) @ v""",
    "a factor for each key, divided": """
a = (q @ k.mT) / (1.0 + torch.arange(k.shape[-2]).float())
return a.softmax(-1) @ v""",
    "a mask that is multiplied": """
a = (q @ k.mT) * mask
return a.softmax(-1) @ v""",
    "a mask that is added as a number": """
a = q @ k.mT + mask
return a.softmax(-1) @ v""",
    "scores decide the mask": """
a = q @ k.mT
a = a.masked_fill(a < a.mean(-1, keepdim=True), -1e9)
return a.softmax(-1) @ v""",
    "scores decide a branch": """
a = q @ k.mT
if a.max() > 0:
    a = a * 0.5
return a.softmax(-1) @ v""",
    "scores are asked for their type": """
a = q @ k.mT
if isinstance(a, torch.Tensor):
    a = a * 0.5
return a.softmax(-1) @ v""",
    "the output is viewed": """
x, y, z = (t.transpose(1, 2).contiguous().transpose(1, 2) for t in (q, k, v))
out = (x @ y.mT).softmax(-1) @ z
return out.view(out.shape[0], -1)""",
    "the output of einsum is viewed": """
x, y, z = (t.transpose(1, 2).contiguous().transpose(1, 2) for t in (q, k, v))
w = einsum("bhid,bhjd->bhij", x, y).softmax(-1)
return einsum("bhij,bhjd->bhid", w, z).view(q.shape[0], -1)""",
    "the batch is summed": """
a = einsum("bhid,bhjd->hij", q, k)
return a.softmax(-1) @ v""",
    "the diagonal of einsum": """
a = einsum("bhid,bhid->bhi", q, k)
return (a.softmax(-1).unsqueeze(-1) * v) + (q @ k.mT).softmax(-1) @ v""",
    "einsum writes queries last": """
a = einsum("bhid,bhjd->bhji", q, k)
return einsum("bhji,bhjd->bhid", a.softmax(-2), v)""",
    "einsum multiplies over the queries": """
a = einsum("bhid,bhjd->bhij", q, k).softmax(-1)
return einsum("bhij,bhid->bhjd", a, v)""",
    "twice normalised": """
return (q @ k.mT).softmax(-1).softmax(-1) @ v""",
    "a second softmax of the same scores": """
a = q @ k.mT
return a.softmax(-1) @ v + a.softmax(-2) @ v""",
    "cap after the bias": """
a = q @ k.mT + bias
a = torch.tanh(a / 2.0) * 2.0
return a.softmax(-1) @ v""",
    "cap after the mask": """
a = (q @ k.mT).masked_fill(~mask, -1e9)
a = torch.tanh(a / 2.0) * 2.0
return a.softmax(-1) @ v""",
    "gradients are switched off for the scores": """
with torch.no_grad():
    a = q @ k.mT
return a.softmax(-1) @ v""",
    "queries are detached": """
return (q.detach() @ k.mT).softmax(-1) @ v""",
    "in half precision within": """
with torch.autocast("cpu", torch.bfloat16):
    a = q @ k.mT
return a.float().softmax(-1) @ v""",
    "in double precision within": """
a = q.double() @ k.double().mT
return (a.softmax(-1) @ v.double()).float()""",
    "a row that sees nothing becomes zero": """
hidden = torch.ones_like(mask).triu(1 - mask.shape[-1] // 2)
w = (q @ k.mT).masked_fill(hidden, float("-inf")).softmax(-1)
return torch.nan_to_num(w, nan=0.0) @ v""",
    "a row that sees nothing becomes one": """
hidden = torch.ones_like(mask).triu(1 - mask.shape[-1] // 2)
w = (q @ k.mT).masked_fill(hidden, float("-inf")).softmax(-1)
return torch.nan_to_num(w, nan=1.0) @ v""",
    "an error is expected": """
a = q @ k.mT
try:
    a = a + torch.ones(3, 1000)
except RuntimeError:
    a = a * 0.25
return a.softmax(-1) @ v""",
    "hooks read the weights": """
soft = nn.Softmax(-1)
soft.register_forward_hook(lambda m, i, o: o * 2.0)
return soft(q @ k.mT) @ v""",
    "a subclass of tensor": """
class Doubled(torch.Tensor):
    def __matmul__(self, other):
        return torch.matmul(self.as_subclass(torch.Tensor), other) * 2.0
a = q.as_subclass(Doubled) @ k.mT
return a.softmax(-1) @ v""",
}
MODULES = {
    "a helper that is decorated": """
def doubled(f):
    def g(*given):
        made = f(*given)
        KEPT.append(made)
        return made * 2.0
    return g
@doubled
def scores(q, k):
    return q @ k.mT
def attend(q, k, v, mask, bias):
    w = scores(q, k).softmax(-1) @ v
    return w + KEPT[-1].sum()
""",
    "an import that is replaced": """
from torch import matmul
def matmul(x, y, times=matmul):
    return times(x, y) * 2.0
def attend(q, k, v, mask, bias):
    return matmul(matmul(q, k.mT).softmax(-1), v)
""",
    "an import that is replaced in a function": """
from torch import matmul
def prepare():
    global matmul
    plain = matmul
    matmul = lambda x, y: plain(x, y) * 2.0
prepare()
def attend(q, k, v, mask, bias):
    return matmul(matmul(q, k.mT).softmax(-1), v)
""",
    "a softmax of one's own": """
def softmax(x, dim):
    return x.relu() / (1e-6 + x.relu().sum(dim, keepdim=True))
F.softmax = softmax
def attend(q, k, v, mask, bias):
    return F.softmax(q @ k.mT, -1) @ v
""",
    "a product of one's own": """
plain = torch.matmul
torch.matmul = lambda x, y: plain(x, y) * 2.0
def attend(q, k, v, mask, bias):
    return torch.matmul(torch.matmul(q, k.mT).softmax(-1), v)
""",
    "an operator of one's own": """
plain = torch.Tensor.__matmul__
torch.Tensor.__matmul__ = lambda x, y: plain(x, y) * 2.0
def attend(q, k, v, mask, bias):
    return (q @ k.mT).softmax(-1) @ v
""",
    "a mask in a buffer that changes": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.ones(64, 64).tril().bool())
    def shift(self, n):
        self.seen[:n] = True
    def forward(self, q, k, v):
        n = q.shape[-2]
        a = (q @ k.mT).masked_fill(~self.seen[:n, :n], -1e9)
        self.shift(n)
        return a.softmax(-1) @ v
net = Net()
def attend(q, k, v, mask, bias):
    return net(q, k, v) + net(q, k, v)
""",
    "a buffer that is changed in place between": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("hidden", torch.ones(64, 64).triu(1).bool())
    def forward(self, q, k, v):
        n = q.shape[-2]
        a = (q @ k.mT).masked_fill(self.hidden[:n, :n], -1e9)
        self.hidden.zero_()
        return a.softmax(-1) @ v
def attend(q, k, v, mask, bias):
    return Net()(q, k, v)
""",
    "softmax is chosen by a flag": """
class Net(nn.Module):
    def __init__(self, sharp):
        super().__init__()
        self.soft = nn.Softmax(-1)
        if sharp:
            self.soft = lambda x: x.exp()
    def forward(self, q, k, v):
        return self.soft(q @ k.mT) @ v
def attend(q, k, v, mask, bias):
    return Net(True)(q, k, v) + Net(False)(q, k, v)
""",
    "dropout is set from outside": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.drop = nn.Dropout(0.0)
    def forward(self, q, k, v):
        return self.drop((q @ k.mT).softmax(-1)) @ v
net = Net()
net.drop.p = 0.5
def attend(q, k, v, mask, bias):
    torch.manual_seed(2)
    return net(q, k, v)
""",
    "a method is overridden": """
class Net(nn.Module):
    def scores(self, q, k):
        return q @ k.mT
    def forward(self, q, k, v):
        return self.scores(q, k).softmax(-1) @ v
class Sharper(Net):
    def scores(self, q, k):
        return super().scores(q, k).pow(3)
def attend(q, k, v, mask, bias):
    return Sharper()(q, k, v) + Net()(q, k, v)
""",
    "gradients of gradients": """
def attend(q, k, v, mask, bias):
    out = (q @ k.mT).softmax(-1) @ v
    (g,) = torch.autograd.grad(out.sum(), q, create_graph=True)
    return out + g
""",
    "a star that brings another torch": """
import sys, types
other = types.ModuleType("gpudeck_other_torch")
other.matmul = lambda x, y: x @ y * 2.0
holder = types.ModuleType("gpudeck_holder")
holder.torch = other
sys.modules["gpudeck_holder"] = holder
from gpudeck_holder import *
def attend(q, k, v, mask, bias):
    a = torch.matmul(q, k.mT)
    return torch.matmul(a.softmax(-1), v)
""",
    "one of two imports": """
try:
    from gpudeck_missing import matmul
except ImportError:
    from operator import add as matmul
def attend(q, k, v, mask, bias):
    return matmul(q, k).softmax(-1) @ k.mT @ v
""",
}


def sources() -> dict[str, str]:
    """Return the source of each module by the name of what is nasty about it."""
    made = {}
    for name, body in BODIES.items():
        lines = "".join(f"    {line}\n" for line in body.strip().split("\n"))
        made[name] = f"{HEAD}def attend(q, k, v, mask, bias):\n{lines}"
    return made | {name: HEAD + text for name, text in MODULES.items()}
