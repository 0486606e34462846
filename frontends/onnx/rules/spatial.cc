// Convolutions, pooling, resizing: batch, channels, then spatial dimensions.
#include "frontends/onnx/rules/spatial.h"

#include <algorithm>
#include <cmath>

#include "frontends/onnx/rules/rules.h"

namespace rooftile::onnx::rules {

Window window_of(Call& call, std::size_t spatial_rank) {
  Window window;
  const auto list = [&](std::string_view name, std::int64_t fallback, std::size_t count) {
    auto values = call.attr_ints(name).value_or(std::vector<std::int64_t>());
    if (values.size() < count) values.resize(count, values.empty() ? fallback : values.back());
    return values;
  };
  window.kernel = list("kernel_shape", 1, spatial_rank);
  window.strides = list("strides", 1, spatial_rank);
  window.dilations = list("dilations", 1, spatial_rank);
  window.pads = list("pads", 0, 2 * spatial_rank);
  window.auto_pad = call.attr_text("auto_pad", "NOTSET");
  window.ceil_mode = call.attr_int("ceil_mode", 0) != 0;
  for (std::size_t i = 0; i < spatial_rank; ++i) {
    if (window.kernel[i] <= 0 || window.strides[i] <= 0 || window.dilations[i] <= 0) {
      call.fail("kernel, strides and dilations must be positive");
      return window;
    }
  }
  return window;
}

Dim window_output(Call& call, const Window& window, std::size_t axis, Dim size) {
  DimContext& dims = call.dims;
  const std::int64_t stride = window.strides[axis];
  if (window.auto_pad == "SAME_UPPER" || window.auto_pad == "SAME_LOWER") return dims.ceildiv(size, stride);
  const Dim reach = dims.add(dims.mul(window.dilations[axis], dims.sub(window.kernel[axis], 1)), 1);
  Dim padded = size;
  const std::size_t rank = window.strides.size();
  if (window.auto_pad != "VALID") padded = dims.add(padded, dims.add(window.pads[axis], window.pads[axis + rank]));
  const Dim room = dims.sub(padded, reach);
  if (room.is_constant() && room.value < 0) {
    if (!window.ceil_mode || room.value <= -stride) {
      call.fail("a kernel that reaches over " + dims.text(reach) + " does not fit into " + dims.text(padded));
      return 0;
    }
    return 1;
  }
  Dim steps = window.ceil_mode ? dims.ceildiv(room, stride) : dims.floordiv(room, stride);
  if (window.ceil_mode && steps.is_constant() && size.is_constant() && steps.value * stride >= size.value + window.pads[axis])
    steps = steps.value - 1;  // no window starts in the end padding
  return dims.add(steps, 1);
}

namespace {

void convolve(Call& call, std::size_t weight, Elem elem) {
  const TensorInfo &x = call.in(0), &w = call.in(weight);
  call.set_type(0, elem);
  if (!x.ranked || !w.ranked) return;
  if (x.rank() < 2 || w.rank() != x.rank()) return call.fail("input " + call.shape_text(x) + " and weight " + call.shape_text(w));
  const std::size_t spatial = x.rank() - 2;
  Window window = window_of(call, spatial);
  if (call.failed()) return;
  const std::int64_t groups = call.attr_int("group", 1);
  if (groups <= 0) return call.fail("group is " + std::to_string(groups));
  call.unify(x.shape[1], call.dims.mul(w.shape[1], groups),
             "channels of " + call.input_name(0) + " " + call.shape_text(x) + " and of the weight " + call.shape_text(w) + " times " + std::to_string(groups) + " groups");
  if (call.failed()) return;
  std::vector<Dim> shape{x.shape[0], w.shape[0]};
  for (std::size_t i = 0; i < spatial; ++i) {
    if (w.shape[i + 2].is_constant()) window.kernel[i] = w.shape[i + 2].value;  // the weight decides
    shape.push_back(window_output(call, window, i, x.shape[i + 2]));
    if (call.failed()) return;
  }
  call.set(0, elem, std::move(shape));
}

void pool(Call& call, std::size_t outputs) {
  const TensorInfo& x = call.in(0);
  for (std::size_t i = 0; i < outputs; ++i) call.set_type(i, i == 0 ? x.elem : Elem::int64);
  if (!x.ranked || x.rank() < 3) return;
  const std::size_t spatial = x.rank() - 2;
  const Window window = window_of(call, spatial);
  if (call.failed()) return;
  std::vector<Dim> shape{x.shape[0], x.shape[1]};
  for (std::size_t i = 0; i < spatial; ++i) shape.push_back(window_output(call, window, i, x.shape[i + 2]));
  if (call.failed()) return;
  for (std::size_t i = 0; i < outputs; ++i) call.set(i, i == 0 ? x.elem : Elem::int64, shape);
}

}  // namespace

void conv(Call& call) { convolve(call, 1, call.in(0).elem); }
void conv_integer(Call& call) { convolve(call, 1, Elem::int32); }
void qlinear_conv(Call& call) { convolve(call, 3, call.in(7).elem != Elem::undefined ? call.in(7).elem : call.in(0).elem); }
void average_pool(Call& call) { pool(call, 1); }
void max_pool(Call& call) { pool(call, 2); }

void conv_transpose(Call& call) {
  const TensorInfo &x = call.in(0), &w = call.in(1);
  call.set_type(0, x.elem);
  if (!x.ranked || !w.ranked) return;
  if (x.rank() < 2 || w.rank() != x.rank()) return call.fail("input " + call.shape_text(x) + " and weight " + call.shape_text(w));
  const std::size_t spatial = x.rank() - 2;
  const Window window = window_of(call, spatial);
  if (call.failed()) return;
  call.unify(x.shape[1], w.shape[0], "channels of " + call.input_name(0) + " and of the weight");
  const auto extra = call.attr_ints("output_padding").value_or(std::vector<std::int64_t>());
  const auto fixed = call.attr_ints("output_shape");
  std::vector<Dim> shape{x.shape[0], call.dims.mul(w.shape[1], call.attr_int("group", 1))};
  for (std::size_t i = 0; i < spatial; ++i) {
    if (fixed && fixed->size() >= spatial) {
      shape.emplace_back((*fixed)[fixed->size() - spatial + i]);
    } else if (window.auto_pad == "SAME_UPPER" || window.auto_pad == "SAME_LOWER") {
      shape.push_back(call.dims.mul(x.shape[i + 2], window.strides[i]));
    } else {
      Dim size = call.dims.mul(window.strides[i], call.dims.sub(x.shape[i + 2], 1));
      size = call.dims.add(size, call.dims.add(i < extra.size() ? extra[i] : 0, call.dims.add(call.dims.mul(call.dims.sub(w.shape[i + 2], 1), window.dilations[i]), 1)));
      shape.push_back(call.dims.sub(size, call.dims.add(window.pads[i], window.pads[i + spatial])));
    }
  }
  call.set(0, x.elem, std::move(shape));
}

void global_pool(Call& call) {
  call.same(0, 0);
  for (std::size_t i = 2; i < call.out(0).shape.size(); ++i) call.out(0).shape[i] = 1;
}

void max_unpool(Call& call) {
  const TensorInfo& x = call.in(0);
  call.set_type(0, x.elem);
  if (call.has(2)) {
    if (auto shape = call.in_dims(2)) call.set(0, x.elem, std::move(*shape));
    return;
  }
  if (!x.ranked || x.rank() < 3) return;
  const Window window = window_of(call, x.rank() - 2);
  std::vector<Dim> shape{x.shape[0], x.shape[1]};
  for (std::size_t i = 0; i + 2 < x.rank(); ++i) {
    const Dim size = call.dims.add(call.dims.mul(call.dims.sub(x.shape[i + 2], 1), window.strides[i]), window.kernel[i]);
    shape.push_back(call.dims.sub(size, call.dims.add(window.pads[i], window.pads[i + window.kernel.size()])));
  }
  call.set(0, x.elem, std::move(shape));
}

void roi_pool(Call& call) {  // RoiAlign, MaxRoiPool: rois give the batch
  const TensorInfo &x = call.in(0), &rois = call.in(1);
  call.set_type(0, x.elem);
  if (!x.ranked || !rois.ranked || x.rank() != 4 || rois.rank() < 1) return;
  const auto pooled = call.attr_ints("pooled_shape");
  const std::int64_t height = pooled && pooled->size() == 2 ? (*pooled)[0] : call.attr_int("output_height", 1);
  const std::int64_t width = pooled && pooled->size() == 2 ? (*pooled)[1] : call.attr_int("output_width", 1);
  call.set(0, x.elem, {rois.shape[0], x.shape[1], height, width});
}

void resize(Call& call) {  // Resize and Upsample of every opset
  const TensorInfo& x = call.in(0);
  call.set_type(0, x.elem);
  if (!x.ranked) return;
  const std::size_t scales_at = call.input_count() == 2 ? 1 : 2;
  std::vector<std::size_t> axes(x.rank());
  for (std::size_t i = 0; i < axes.size(); ++i) axes[i] = i;
  if (const auto given = call.attr_ints("axes")) {
    axes.clear();
    for (const std::int64_t axis : *given) {
      std::size_t at = 0;
      if (!call.axis_of(axis, x.rank(), at)) return;
      axes.push_back(at);
    }
  }
  std::vector<Dim> shape = x.shape;
  if (const auto sizes = call.in_dims(3); sizes && sizes->size() == axes.size()) {
    for (std::size_t i = 0; i < axes.size(); ++i) shape[axes[i]] = (*sizes)[i];
    const std::string_view policy = call.attr_text("keep_aspect_ratio_policy", "stretch");
    if (policy != "stretch" && all_constant(shape) && all_constant(x.shape)) {
      double scale = policy == "not_larger" ? 1e300 : 0;
      for (const std::size_t axis : axes) {
        if (x.shape[axis].value <= 0) return;
        const double own = static_cast<double>(shape[axis].value) / static_cast<double>(x.shape[axis].value);
        scale = policy == "not_larger" ? std::min(scale, own) : std::max(scale, own);
      }
      for (const std::size_t axis : axes) {
        const double size = std::nearbyint(scale * static_cast<double>(x.shape[axis].value));
        if (size < 9e18) shape[axis] = static_cast<std::int64_t>(size);
      }
    }
    return call.set(0, x.elem, std::move(shape));
  }
  std::vector<double> scales;
  if (call.has(scales_at) && call.in(scales_at).value != nullptr) {
    for (const Element& element : *call.in(scales_at).value) {
      if (!element.is_constant()) break;
      scales.push_back(element.number());
    }
  } else if (const Attribute* attribute = call.node.attribute("scales")) {
    scales.assign(attribute->floats.begin(), attribute->floats.end());
  } else if (call.has_attr("height_scale") && x.rank() == 4) {
    scales = {1, 1, call.attr_float("height_scale", 1), call.attr_float("width_scale", 1)};
  }
  if (scales.size() != axes.size()) {
    for (std::size_t i = 0; i < axes.size(); ++i) shape[axes[i]] = call.data_size(0, "dim" + std::to_string(axes[i]), shape[axes[i]]);
    return call.set(0, x.elem, std::move(shape));
  }
  for (std::size_t i = 0; i < axes.size(); ++i) {
    Dim& dim = shape[axes[i]];
    const double scale = scales[i];
    if (dim.is_constant()) {
      const double size = std::floor(static_cast<double>(dim.value) * scale);
      if (!(size >= 0 && size < 9e18)) return call.fail("a scale of " + std::to_string(scale));
      dim = static_cast<std::int64_t>(size);
    } else if (scale >= 1 && scale == std::floor(scale) && scale < 1e9) {
      dim = call.dims.mul(dim, static_cast<std::int64_t>(scale));
    } else if (scale > 0 && scale < 1 && std::fabs(1 / scale - std::nearbyint(1 / scale)) < 1e-6) {
      dim = call.dims.floordiv(dim, static_cast<std::int64_t>(std::nearbyint(1 / scale)));
    } else if (scale != 1) {
      dim = call.data_size(0, "dim" + std::to_string(axes[i]), dim);
    }
  }
  call.set(0, x.elem, std::move(shape));
}

void grid_sample(Call& call) {
  const TensorInfo &x = call.in(0), &grid = call.in(1);
  call.set_type(0, x.elem);
  if (!x.ranked || !grid.ranked || x.rank() < 3 || grid.rank() != x.rank()) return;
  std::vector<Dim> shape{x.shape[0], x.shape[1]};
  shape.insert(shape.end(), grid.shape.begin() + 1, grid.shape.end() - 1);
  call.set(0, x.elem, std::move(shape));
}

void affine_grid(Call& call) {
  call.set_type(0, call.in(0).elem);
  const auto size = call.in_dims(1);
  if (!size || size->size() < 4) return;
  std::vector<Dim> shape{(*size)[0]};
  shape.insert(shape.end(), size->begin() + 2, size->end());
  shape.emplace_back(static_cast<std::int64_t>(size->size()) - 2);
  call.set(0, call.in(0).elem, std::move(shape));
}

void col2im(Call& call) {
  call.set_type(0, call.in(0).elem);
  const auto image = call.in_dims(1), block = call.in_dims(2);
  if (!call.ranked(0) || call.in(0).rank() != 3 || !image || !block) return;
  std::vector<Dim> shape{call.in(0).shape[0], call.dims.floordiv(call.in(0).shape[1], call.product(*block))};
  shape.insert(shape.end(), image->begin(), image->end());
  call.set(0, call.in(0).elem, std::move(shape));
}

void batch_normalization(Call& call) {
  call.same(0, 0);
  for (std::size_t i = 1; i < call.output_count(); ++i) call.same(i, i == 2 || i == 4 ? 4 : 3);
}

void dft(Call& call) {
  call.same(0, 0);
  TensorInfo& out = call.out(0);
  if (!out.ranked || out.rank() < 2) return;
  const bool inverse = call.attr_int("inverse", 0) != 0, onesided = call.attr_int("onesided", 0) != 0;
  std::int64_t axis = call.attr_int("axis", 1);
  if (const auto given = call.in_ints(2); given && given->size() == 1) axis = (*given)[0];
  std::size_t at = 0;
  if (!call.axis_of(axis, out.rank(), at)) return;
  if (const auto length = call.in_dim(1)) out.shape[at] = *length;
  if (onesided && !inverse) out.shape[at] = call.dims.add(call.dims.floordiv(out.shape[at], 2), 1);
  out.shape.back() = 2;
}

void stft(Call& call) {
  call.set_type(0, call.in(0).elem);
  const auto step = call.in_dim(1);
  std::optional<Dim> length = call.in_dim(3);
  if (!length && call.ranked(2) && call.in(2).rank() == 1) length = call.in(2).shape[0];
  if (!call.ranked(0) || call.in(0).rank() < 2 || !step || *step == Dim(0) || !length) return;
  const auto& signal = call.in(0).shape;
  const Dim frames = call.dims.add(call.dims.floordiv(call.dims.sub(signal[1], *length), *step), 1);
  const bool onesided = call.attr_int("onesided", 1) != 0;
  call.set(0, call.in(0).elem, {signal[0], frames, onesided ? call.dims.add(call.dims.floordiv(*length, 2), 1) : *length, 2});
}

}  // namespace rooftile::onnx::rules
