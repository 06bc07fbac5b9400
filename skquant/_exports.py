"""The rule as C, as SQL and as ONNX; imported when one is asked for."""

import re

import numpy as np

_C_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


def to_c(rule, name):
    """Return C99 source of ``int name(const double *score)``."""
    if not isinstance(name, str) or not _C_NAME.match(name):
        raise ValueError(f"name must be a C identifier; got {name!r}.")
    n_bins, n_features = rule.coef.shape
    slopes = ",\n".join(
        "    {" + ", ".join(value.hex() for value in row) + "}"
        for row in rule.coef.tolist()
    )
    offsets = ", ".join(value.hex() for value in rule.intercept.tolist())
    # volatile keeps a compiler from fusing a product into the sum; a NaN logit, from
    # overflow, wins as it does in NumPy's argmax
    return f"""/* Label 0..{n_bins - 1} of a score of {n_features} columns. */
int {name}(const double *score)
{{
  static const double coef[{n_bins}][{n_features}] = {{
{slopes}}};
  static const double intercept[{n_bins}] = {{{offsets}}};
  double best = 0.0;
  int label = 0;
  for (int b = 0; b < {n_bins}; ++b) {{
    volatile double logit = intercept[b];
    for (int j = 0; j < {n_features}; ++j) {{
      volatile double product = score[j] * coef[b][j];
      logit = logit + product;
    }}
    if (b == 0 || logit > best || (logit != logit && best == best)) {{
      best = logit;
      label = b;
    }}
  }}
  return label;
}}
"""


def to_sql(rule, columns=None):
    """Return one SQL expression, the label, in terms of columns."""
    columns = rule.feature_names if columns is None else columns
    if columns is None or isinstance(columns, str):
        raise ValueError(
            "columns must be a list of column names, for the rule has no feature "
            f"names; got {columns!r}."
        )
    columns = [str(column) for column in columns]
    if len(columns) != rule.n_features:
        raise ValueError(
            f"columns must have {rule.n_features} names; got {len(columns)}."
        )
    quoted = ['"' + column.replace('"', '""') + '"' for column in columns]
    slopes = [f"skquant_slope{j}" for j in range(rule.n_features)]
    table = np.column_stack([rule.intercept, rule.coef]).tolist()
    rows = ", ".join(
        # an exponent makes the literal a double, never a decimal
        f"({b}, " + ", ".join(f"{value:.16e}" for value in row) + ")"
        for b, row in enumerate(table)
    )
    logit = "skquant_intercept" + "".join(
        f" + {column} * {slope}" for column, slope in zip(quoted, slopes, strict=True)
    )
    names = ", ".join(["skquant_cell", "skquant_intercept", *slopes])
    # the logit is a column: SQLite does not look outside a subquery from its ORDER BY
    return (
        f"(WITH skquant_cells({names}) AS (VALUES {rows}) SELECT skquant_cell FROM "
        f"(SELECT skquant_cell, {logit} AS skquant_logit FROM skquant_cells) AS "
        "skquant_logits ORDER BY skquant_logit DESC, skquant_cell LIMIT 1)"
    )


def to_onnx(rule, path=None):
    """Return an ONNX model of labels and, of a soft rule, responsibilities."""
    try:
        from onnx import TensorProto, checker, helper, numpy_helper, save
    except ImportError as error:
        raise ImportError(
            "to_onnx needs the onnx package: pip install onnx."
        ) from error
    # ONNX has no sparsemax, and the hard limit is the label itself
    soft = rule.relaxation == "softmax" and bool(rule.temperature)
    nodes, constants = [], []

    def constant(name, value):
        constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def node(kind, inputs, output, **attributes):
        nodes.append(helper.make_node(kind, inputs, [output], **attributes))
        return output

    # column by column, the order in which every implementation sums
    logits = constant("intercept", rule.intercept[None, :])
    for j in range(rule.n_features):
        index = constant(f"index{j}", np.array([j], dtype=np.int64))
        slope = constant(f"slope{j}", rule.coef[None, :, j])
        column = node("Gather", ["scores", index], f"column{j}", axis=1)
        product = node("Mul", [column, slope], f"product{j}")
        logits = node("Add", [logits, product], f"logits{j}")
    label = node("ArgMax", [logits], "label64", axis=1, keepdims=0)
    node("Cast", [label], "label", to=TensorProto.INT32)
    outputs = [helper.make_tensor_value_info("label", TensorProto.INT32, ["n"])]
    if soft:
        top = node("ReduceMax", [logits], "top", axes=[1], keepdims=1)
        below = node("Sub", [logits, top], "below")
        temperature = constant("temperature", np.float64(rule.temperature))
        scaled = node("Div", [below, temperature], "scaled")
        node("Softmax", [scaled], "responsibilities", axis=1)
        outputs.append(
            helper.make_tensor_value_info(
                "responsibilities", TensorProto.DOUBLE, ["n", rule.n_bins]
            )
        )
    scores = helper.make_tensor_value_info(
        "scores", TensorProto.DOUBLE, ["n", rule.n_features]
    )
    graph = helper.make_graph(nodes, "AffineMaxRule", [scores], outputs, constants)
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8
    )
    checker.check_model(model)
    if path is not None:
        save(model, path)
    return model
