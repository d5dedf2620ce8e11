"""Calls of `jax.scipy`, `jax.numpy.fft` and `jax.numpy.linalg`: signals, images, dense solvers, special functions."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy as jsp

from benchmarks.corpus.record import Call, Catalogue
from benchmarks.corpus.shapes import integers, spec

SCIPY = Catalogue("jax.scipy", "helper", "science")
LINALG = Catalogue("jax.numpy.linalg", "helper", "science")
FFT = Catalogue("jax.numpy.fft", "helper", "science")
CATALOGUES = [SCIPY, LINALG, FFT]
C64 = jnp.complex64


@SCIPY.program("scipy_stft_istft", "infer", "f32", group="audio")
def _() -> Call:
    def denoised(signal: Any) -> Any:
        _, _, spectrum = jsp.signal.stft(signal, nperseg=512, noverlap=384)
        gain = jnp.maximum(1 - 0.1 / (jnp.abs(spectrum) + 1e-6), 0)
        return jsp.signal.istft(spectrum * gain, nperseg=512, noverlap=384)[1]

    return denoised, (spec(32, 160000),)


@SCIPY.program("scipy_welch_csd", "infer", "f32", group="audio")
def _() -> Call:
    return lambda x, y: (jsp.signal.welch(x, nperseg=1024)[1], jsp.signal.csd(x, y, nperseg=1024)[1]), (
        spec(64, 262144),
        spec(64, 262144),
    )


@SCIPY.program("scipy_fftconvolve_reverb", "infer", "f32", group="audio")
def _() -> Call:
    return jax.vmap(jsp.signal.fftconvolve, in_axes=(0, None)), (spec(32, 240000), spec(48000))


@SCIPY.program("scipy_convolve2d_filters", "infer", "f32", group="vision")
def _() -> Call:
    return jax.vmap(lambda image, kernel: jsp.signal.convolve2d(image, kernel, mode="same")), (
        spec(8, 1024, 1024),
        spec(8, 11, 11),
    )


@SCIPY.program("scipy_map_coordinates_warp", "infer", "f32", group="vision")
def _() -> Call:
    def warped(images: Any, flow: Any) -> Any:
        grid = jnp.stack(jnp.meshgrid(jnp.arange(512.0), jnp.arange(512.0), indexing="ij"))
        return jax.vmap(lambda im, fl: jsp.ndimage.map_coordinates(im, grid + fl, order=1, mode="reflect"))(
            images, flow
        )

    return warped, (spec(32, 512, 512), spec(32, 2, 512, 512))


@SCIPY.program("scipy_cholesky_gp_train", "train", "f32")
def _() -> Call:
    def likelihood(parameters: Any, x: Any, y: Any) -> Any:
        scale, amplitude, noise = (jnp.exp(each) for each in parameters)
        squares = jnp.sum(x**2, 1)[:, None] - 2 * x @ x.T + jnp.sum(x**2, 1)[None]
        cov = amplitude * jnp.exp(-0.5 * squares / scale) + (noise + 1e-2) * jnp.eye(x.shape[0])
        factor = jsp.linalg.cho_factor(cov, lower=True)
        return 0.5 * y @ jsp.linalg.cho_solve(factor, y) + jnp.log(jnp.diagonal(factor[0])).sum()

    return jax.value_and_grad(likelihood), ([spec()] * 3, spec(2048, 8), spec(2048))


@SCIPY.program("scipy_lu_triangular_batched", "infer", "f32")
def _() -> Call:
    def solved(a: Any, b: Any) -> Any:
        upper = jnp.triu(a) + 8 * jnp.eye(a.shape[-1])
        return jsp.linalg.solve_triangular(upper, b), jsp.linalg.lu_solve(jsp.linalg.lu_factor(a), b)

    return solved, (spec(256, 128, 128), spec(256, 128, 32))


@SCIPY.program("scipy_expm_small", "infer", "f32")
def _() -> Call:
    return jax.vmap(lambda a: jsp.linalg.expm(0.1 * a)), (spec(512, 24, 24),)


@SCIPY.program("scipy_special_functions", "infer", "f32")
def _() -> Call:
    def values(x: Any) -> Any:
        positive = jnp.abs(x) + 0.5
        special = jsp.special
        return (
            special.gammaln(positive),
            special.digamma(positive),
            special.erfinv(jnp.tanh(x)),
            special.i0e(x),
            special.logsumexp(x, axis=-1),
            special.ndtri(jax.nn.sigmoid(x)),
            special.zeta(positive + 1.5, positive),
        )

    return values, (spec(1024, 4096),)


@SCIPY.program("scipy_gammainc_betainc", "infer", "f32", group="probabilistic")
def _() -> Call:
    def values(a: Any, x: Any) -> Any:
        a, x = jnp.abs(a) + 0.5, jnp.abs(x) + 0.1
        return jsp.special.gammainc(a, x), jsp.special.betainc(a, a + 1, jax.nn.sigmoid(x))

    return values, (spec(512, 2048), spec(512, 2048))


@SCIPY.program("scipy_stats_mixture_train", "train", "f32", group="probabilistic")
def _() -> Call:
    def loss(parameters: Any, x: Any) -> Any:
        logits, means, scales = parameters
        each = jsp.stats.norm.logpdf(x[:, None, :], means, jnp.exp(scales)).sum(-1)
        return -jsp.special.logsumexp(jax.nn.log_softmax(logits) + each, axis=1).mean()

    return jax.value_and_grad(loss), ((spec(64), spec(64, 16), spec(64, 16)), spec(65536, 16))


@SCIPY.program("scipy_kde_multivariate", "infer", "f32", group="probabilistic")
def _() -> Call:
    return lambda data, points: jsp.stats.gaussian_kde(data)(points), (spec(3, 4096), spec(3, 16384))


@SCIPY.program("scipy_dct_jpeg_blocks", "infer", "f32", group="vision")
def _() -> Call:
    def coded(images: Any, table: Any) -> Any:
        blocks = images.reshape(32, 64, 8, 64, 8).transpose(0, 1, 3, 2, 4)
        return jsp.fft.idctn(
            jnp.round(jsp.fft.dctn(blocks, axes=(3, 4), norm="ortho") / table) * table, axes=(3, 4), norm="ortho"
        )

    return coded, (spec(32, 512, 512), spec(8, 8))


@SCIPY.program("scipy_sparse_cg_poisson", "step", "f32")
def _() -> Call:
    def laplace(x: Any) -> Any:
        padded = jnp.pad(x, 1)
        return 4.01 * x - padded[2:, 1:-1] - padded[:-2, 1:-1] - padded[1:-1, 2:] - padded[1:-1, :-2]

    return lambda b: jsp.sparse.linalg.cg(laplace, b, maxiter=50, tol=0.0)[0], (spec(1024, 1024),)


@SCIPY.program("scipy_integrate_interpolate", "infer", "f32")
def _() -> Call:
    def values(y: Any, points: Any) -> Any:
        axes = (jnp.linspace(0.0, 1.0, 128), jnp.linspace(0.0, 1.0, 128), jnp.linspace(0.0, 1.0, 64))
        field = jsp.interpolate.RegularGridInterpolator(axes, y)
        return jsp.integrate.trapezoid(y, dx=0.1, axis=0), field(jax.nn.sigmoid(points))

    return values, (spec(128, 128, 64), spec(262144, 3))


@LINALG.program("linalg_svd_batched", "infer", "f32")
def _() -> Call:
    return lambda a: jnp.linalg.svd(a, full_matrices=False), (spec(64, 64, 32),)


@LINALG.program("linalg_eigh_covariances", "infer", "f32")
def _() -> Call:
    def whitened(x: Any) -> Any:
        cov = jnp.einsum("bni,bnj->bij", x, x) / x.shape[1]
        values, vectors = jnp.linalg.eigh(cov)
        return jnp.einsum("bni,bij->bnj", x, vectors / jnp.sqrt(values + 1e-5)[:, None])

    return whitened, (spec(128, 512, 24),)


@LINALG.program("linalg_qr_orthogonal_iteration", "step", "f32")
def _() -> Call:
    def iterated(a: Any, q: Any) -> Any:
        return jax.lax.fori_loop(0, 8, lambda _, each: jnp.linalg.qr(a @ (a.T @ each))[0], q)

    return iterated, (spec(2048, 2048), spec(2048, 64))


@LINALG.program("linalg_inverse_determinant_complex", "infer", "c64")
def _() -> Call:
    return lambda a: (jnp.linalg.inv(a), jnp.linalg.slogdet(a)), (spec(512, 32, 32, dtype=C64),)


@LINALG.program("linalg_cholesky_large", "infer", "f32")
def _() -> Call:
    return lambda a: jnp.linalg.cholesky(a @ a.T + 4096 * jnp.eye(4096)), (spec(4096, 4096),)


@LINALG.program("linalg_lstsq_pinv", "infer", "f32")
def _() -> Call:
    return lambda a, b: (jnp.linalg.lstsq(a, b)[0], jnp.linalg.matrix_power(a.T @ a, 5)), (
        spec(2048, 128),
        spec(2048, 8),
    )


@FFT.program("fft_3d_convolution_theorem", "infer", "c64")
def _() -> Call:
    return lambda x, h: jnp.fft.ifftn(jnp.fft.fftn(x) * h), (
        spec(128, 128, 128, dtype=C64),
        spec(128, 128, 128, dtype=C64),
    )


@FFT.program("fft_fno_spectral_layers_train", "train", "f32")
def _() -> Call:
    def loss(weights: Any, x: Any) -> Any:
        for spectral, local in weights:
            modes = jnp.einsum("bxyi,xyio->bxyo", jnp.fft.rfft2(x, axes=(1, 2))[:, :24, :24], spectral)
            spread = (
                jnp.zeros((*x.shape[:2], x.shape[2] // 2 + 1, x.shape[3]), jnp.complex64).at[:, :24, :24].set(modes)
            )
            x = jax.nn.gelu(jnp.fft.irfft2(spread, s=x.shape[1:3], axes=(1, 2)) + x @ local)
        return jnp.square(x).mean()

    return jax.grad(loss), ([(spec(24, 24, 48, 48, dtype=C64), spec(48, 48))] * 4, spec(16, 128, 128, 48))


@FFT.program("fft_split_step_schroedinger", "step", "c64")
def _() -> Call:
    def step(psi: Any, potential: Any, kinetic: Any) -> Any:
        def turn(_: Any, psi: Any) -> Any:
            return jnp.fft.ifft2(jnp.exp(-0.5j * kinetic) * jnp.fft.fft2(jnp.exp(-1j * potential) * psi))

        return jax.lax.fori_loop(0, 20, turn, psi)

    return step, (spec(1024, 1024, dtype=C64), spec(1024, 1024), spec(1024, 1024))


@FFT.program("fft_rows_of_odd_lengths", "infer", "c64")
def _() -> Call:
    return (
        lambda a, b, c: (jnp.fft.fft(a), jnp.fft.rfft(b), jnp.fft.irfft(c)),
        (spec(4096, 1000, dtype=C64), spec(8192, 441), spec(1024, 4097, dtype=C64)),
    )


@FFT.program("fft_autocorrelation_batch", "infer", "f32", group="audio")
def _() -> Call:
    def autocorrelation(x: Any, lags: Any) -> Any:
        power = jnp.abs(jnp.fft.rfft(x, n=2 * x.shape[-1])) ** 2
        return jnp.take(jnp.fft.irfft(power), lags, axis=-1)

    return autocorrelation, (spec(256, 16384), integers(16384, 128))
