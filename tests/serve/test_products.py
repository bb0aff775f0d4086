"""Products by ONNX Runtime equal NumPy's."""

import numpy as np
import pytest

from dsal.serve.engine import products


def test_a_prepared_product_equals_numpys(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    monkeypatch.setenv("DSAL_ONNX", "1")
    random = np.random.default_rng(0)
    matrix = random.standard_normal((40, 70)).astype(np.float32)
    product = products.product_with(matrix)
    assert product is not np.matmul
    for rows in (1, 2, 9):
        x = random.standard_normal((rows, 40)).astype(np.float32)
        np.testing.assert_allclose(product(x, matrix), x @ matrix, rtol=1e-5, atol=1e-5)
    monkeypatch.setattr(products, "_MOST_BYTES", 100)
    assert products.product_with(matrix) is np.matmul
