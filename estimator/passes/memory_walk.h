// The life of every tensor of a step, in the order in which the runtime executes it. Each segment is walked once and repeated algebraically.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "estimator/passes/step.h"

namespace rooftile {

struct MemoryBase {  // what lives before the first operator
  double weights = 0, optimizer = 0, gradients = 0, cache = 0, workspace = 0;
  double backward_workspace = 0;                         // appears with the backward pass
  bool gradients_persist = false;                        // the backward pass adds into buffers that exist
  bool gradients_accumulate = false;                     // they exist, and each new gradient is added to them
  double gradient_share = 1, expert_gradient_share = 1;  // of a rank that keeps a part (ZeRO-2, ZeRO-3)
  double gradient_waste = 0;                             // bytes that the blocks of a layer's gradients take beyond them
  double in_flight = 1;                                  // micro-batches whose activations a pipeline stage holds
};

class MemoryWalk {
 public:
  MemoryWalk(const StepGraph& rank, const Options& options, const Runtime& runtime, const Device& device, const MemoryBase& base);

  // Plays the step. With a target, it stops at that event and fills `top` with what is alive there.
  void run();
  void explain(MemoryTotals& totals);

  double peak() const { return peak_; }
  double largest_block() const { return largest_; }
  double gradients_at_peak() const { return peak_gradients_; }
  double cache_at_peak() const { return peak_cache_; }
  // The most that activations, gradients on their way and temporaries ever take (at a moment of their own).
  double most_moving() const { return moving_ > 0 ? moving_ - base_.weights - base_.optimizer - base_.workspace - base_.backward_workspace : 0; }
  // Bytes beyond the state and the gradients after the last operator: what lives through the whole step (ids, other micro-batches) or was never freed.
  double left_over() const { return live_ - base_.weights - base_.optimizer - base_.workspace - base_.backward_workspace - gradients_ - cache_; }
  double casts_at_peak() const { return peak_casts_; }

 private:
  enum class Kind : std::uint8_t { activation, gradient, cast, cache };
  struct Buffer {
    double bytes = 0;
    std::int32_t refs = 0;
    std::uint32_t op = 0, segment = 0;
    Kind kind = Kind::activation;
    bool moving = false;  // a gradient on its way back or a temporary of the backward pass
  };
  struct Value {
    std::int32_t buffer = -1;
    std::int32_t gradient = -1;  // buffer of its gradient
    double elements = 0;
    float width = 2;  // bytes of an element
    bool wants_gradient = false, heads_first = false;
    bool bound = true;  // a tensor or a name of a program still refers to it
  };
  struct Entry {  // one operation to go back through
    MemoryPrim prim = MemoryPrim::copy;
    std::uint8_t results = 1, arguments = 0, saves = 0;
    bool whole_operator = false;  // an operator without a program
    std::uint32_t op = 0;
    std::array<std::int32_t, 3> result{}, argument{};
    std::array<std::int32_t, 6> saved{};
  };
  struct Moment {
    StepPhase phase = StepPhase::forward;
    std::uint32_t segment = 0, op = 0;
    std::int64_t event = -1;
    bool last = false;  // in the last repetition of its segment
  };
  struct Sizes {
    double queries = 0, scores = 0, rows = 0;
  };

  // memory_walk.cc
  void keep_outside_tensors();
  void play();
  void enter(const Segment& segment);
  void forward(std::uint32_t segment, bool record);
  void forward_repeated(std::uint32_t segment);
  void backward_repeated(std::uint32_t segment);
  void finish(double before, double local_peak, double gained, std::int64_t repeat, const Moment& at);
  void finish_moving(double gained, std::int64_t repeat);
  void release_casts();
  void release_shared(std::uint32_t segment);
  std::int32_t allocate(double bytes, Kind kind, bool moving = false);
  void hold(std::int32_t buffer) {
    if (buffer >= 0) ++buffers_[static_cast<std::size_t>(buffer)].refs;
  }
  void drop(std::int32_t buffer);
  void note();
  std::int32_t value(double elements, float width, bool wants_gradient, std::int32_t buffer);
  void prepare_uses(const Segment& segment);
  void bind(TensorId tensor, std::int32_t value);
  void release_tensor(TensorId tensor);
  void snapshot();

  // memory_operators.cc
  void run_operator(std::uint32_t op);
  void run_program(const Operator& op, const MemoryProgram& program);
  void run_plain(const Operator& op);
  void run_kept(const Operator& op);
  void run_cache_write(const Operator& op);
  std::int32_t run_step(const Operator& op, const MemoryStep& step, std::array<std::int32_t, kProgramNames>& names, const Sizes& sizes);
  std::int32_t cast(std::int32_t value, float width);
  void save(Entry& entry, std::int32_t buffer);
  double multiplied_weights(const Operator& op) const;
  const MemoryProgram* program_of(const Operator& op) const;
  std::uint16_t conditions_of(const Operator& op) const;
  Sizes sizes_of(const Operator& op) const;
  float out_width(const Operator& op, TensorId tensor) const;

  // memory_backward.cc
  void backward(std::size_t from);
  void backward_entry(Entry& entry);
  void backward_operator(const Entry& entry);
  void backward_linear(const Entry& entry);
  void backward_sdpa(const Entry& entry);
  void give(std::int32_t value, std::int32_t buffer);
  void give_new(std::int32_t value, double elements = 0);
  void weight_gradient(const Operator& op, double elements, float width);
  void parameter_gradients(const Operator& op);

  const StepGraph& rank_;
  const Graph& graph_;
  const Options& options_;
  const Runtime& runtime_;
  const MemoryBase& base_;
  StateBytes state_;
  OpWork work_;
  bool programs_ = false, autocast_ = false, train_ = false, standard_ = false;
  bool recording_ = false, in_recompute_ = false;
  float low_ = 2, parameter_ = 2;

  std::vector<Buffer> buffers_;
  std::vector<Value> values_;
  std::vector<Entry> tape_;
  std::vector<std::int32_t> tensor_value_, held_, casts_, branch_;
  std::vector<std::uint16_t> uses_;
  std::vector<std::uint32_t> last_reader_;
  std::vector<TensorId> returned_;
  std::vector<std::size_t> tape_begin_;
  std::vector<double> gained_, multiple_;
  std::vector<std::int32_t> checkpoints_;
  std::vector<std::vector<std::int32_t>> shared_;
  bool tied_gradient_ = false;
  double live_ = 0, local_peak_ = 0, peak_ = 0, largest_ = 0;
  double gradients_ = 0, cache_ = 0, live_casts_ = 0;
  double local_gradients_ = 0, local_cache_ = 0, local_casts_ = 0, peak_gradients_ = 0, peak_cache_ = 0, peak_casts_ = 0;
  std::int64_t event_ = 0, target_ = -1;
  double in_flight_ = 0;  // of the other micro-batches of a pipeline stage
  double local_moving_ = 0, moving_ = 0;
  double others_ = 0;  // bytes of the other repetitions of the segment at work
  StepPhase phase_ = StepPhase::forward;
  std::uint32_t segment_ = 0, op_ = 0;
  Moment local_at_, peak_at_;
  MemoryTotals* totals_ = nullptr;
};

}  // namespace rooftile
