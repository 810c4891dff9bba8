// A callable that somebody else keeps: two pointers, nothing allocated, and valid as long as what it was made of.
#pragma once

namespace nibble {

template <typename Signature>
class FunctionRef;

template <typename... Arguments>
class FunctionRef<void(Arguments...)> {
 public:
  template <typename Function>
  FunctionRef(const Function& function)  // NOLINT(google-explicit-constructor): a lambda is passed as it is
      : function_(&function),
        call_([](const void* f, Arguments... arguments) { (*static_cast<const Function*>(f))(arguments...); }) {}

  void operator()(Arguments... arguments) const { call_(function_, arguments...); }

 private:
  const void* function_;
  void (*call_)(const void*, Arguments...);
};

}  // namespace nibble
