"""Offer the float64 reference as a backend; `auto` never chooses it."""

from __future__ import annotations

import torch
from torch import Tensor

from gpudeck.accel.attention.backends.base import Backend, Gradients
from gpudeck.accel.attention.inputs import Inputs
from gpudeck.accel.attention.problem import Problem
from gpudeck.accel.attention.reference import reference


class Reference(Backend):
    """Attention in float64, returned in the dtype of q, with gradients by automatic
    differentiation."""

    variants = frozenset({"lse_grad", "alibi", "blocks"})
    adds_sink = True

    def takes_narrow(self, p: Problem) -> bool:
        """Return True: products take any sizes."""
        return True

    def forward(self, x: Inputs, problem: Problem) -> tuple[Tensor, Tensor]:
        """Run the forward pass, one block of rows after the other."""
        out, lse = self._solve(x, problem)
        return out.to(x.q.dtype), lse.float()

    def backward(
        self,
        dout: Tensor,
        x: Inputs,
        out: Tensor,
        lse: Tensor,
        problem: Problem,
        dlse: Tensor | None = None,
    ) -> Gradients:
        """Run the forward pass again with gradients recorded, and differentiate it."""
        x = x.with_mask()
        bias = x.bias
        given = [x.q, x.k, x.v, *([bias] if bias is not None and problem.bias_grad else [])]
        with torch.enable_grad():
            leaves = [t.detach().double().requires_grad_() for t in given]
            asked = x._replace(
                q=leaves[0], k=leaves[1], v=leaves[2], bias=leaves[3] if problem.bias_grad else bias
            )
            again, again_lse = self._solve(asked, problem)
            answers, given_grads = [again], [dout.double()]
            if dlse is not None:
                answers, given_grads = [again, again_lse], [dout.double(), dlse.double()]
            grads = torch.autograd.grad(answers, leaves, given_grads, allow_unused=True)
        dq, dk, dv, *dbias = (
            torch.zeros_like(t) if g is None else g.to(t.dtype)
            for t, g in zip(given, grads, strict=True)
        )
        return Gradients(dq, dk, dv, *dbias)

    def _solve(self, x: Inputs, p: Problem) -> tuple[Tensor, Tensor]:
        x = x.with_mask()
        return reference(
            x.q,
            x.k,
            x.v,
            window=(p.left, p.right),
            scale=p.scale,
            softcap=p.softcap,
            bias=x.bias,
            ragged=x.ragged,
            sink=x.sink,
            alibi=x.slopes,
            return_lse=True,
        )
