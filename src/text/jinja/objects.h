// The objects that statements make: the variable `loop`, and macros.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "text/jinja/interpreter.h"
#include "text/jinja/ops.h"

namespace nibble::text::jinja {

class LoopObject final : public Host, public std::enable_shared_from_this<LoopObject> {
 public:
  LoopObject(Runtime* runtime, Interpreter& interpreter, const For& node, std::shared_ptr<Iterator> source,
             std::optional<std::size_t> size, int depth, std::shared_ptr<Scope> scope)
      : Host(runtime, sizeof *this),
        interpreter_(interpreter),
        node_(node),
        source_(std::move(source)),
        size_(size),
        depth_(depth),
        scope_(std::move(scope)) {}

  bool advance(Runtime& runtime);  // to the next item; false at the end
  const Value& current() const { return current_; }

  std::string type() const override { return "LoopContext"; }
  std::string repr(Runtime& runtime) override;
  bool is_callable() const override { return true; }
  Value call(Runtime& runtime, const Args& args) override;
  std::optional<Value> attribute(Runtime& runtime, std::string_view name) override;
  void clear() override;

 private:
  const std::optional<Value>& peek(Runtime& runtime);
  std::int64_t size(Runtime& runtime);
  Value cycle(const Args& args) const;
  Value changed(Runtime& runtime, const Args& args);

  Interpreter& interpreter_;
  const For& node_;
  std::shared_ptr<Iterator> source_;
  std::vector<Value> read_ahead_;  // what a question for the length had to read, in reverse
  std::optional<std::size_t> size_;
  int depth_;
  std::shared_ptr<Scope> scope_;
  std::int64_t index0_ = -1;
  Value current_, before_;
  bool has_before_ = false;
  std::optional<Value> after_;
  std::optional<Value> last_changed_;
};

class MacroObject final : public Host {
 public:
  MacroObject(Runtime* runtime, Interpreter& interpreter, std::shared_ptr<const Macro> macro,
              std::shared_ptr<Scope> closure)
      : Host(runtime, sizeof *this),
        interpreter_(interpreter),
        macro_(std::move(macro)),
        closure_(std::move(closure)) {}

  std::string type() const override { return "Macro"; }
  std::string repr(Runtime&) override {
    return macro_->name.empty() ? "<Macro anonymous>" : "<Macro '" + macro_->name + "'>";
  }
  bool is_callable() const override { return true; }
  Value call(Runtime& runtime, const Args& args) override;
  std::optional<Value> attribute(Runtime& runtime, std::string_view name) override;

 private:
  Interpreter& interpreter_;
  std::shared_ptr<const Macro> macro_;
  std::shared_ptr<Scope> closure_;
};

}  // namespace nibble::text::jinja
