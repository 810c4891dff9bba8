// Wrong usage: exit status 2, a message that names flag, found and expected, and no file opened by then. The model of
// most of these commands does not exist, which would be another message and status 1.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/apps/run_nibble.h"

namespace nibble::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr const char* kNoModel = "no/such/model.gguf";

// One flag of `command` with a value that cannot be.
void expect_refused(const std::vector<std::string>& command, const std::string& flag, const std::string& value,
                    const std::string& expected) {
  std::vector<std::string> arguments = command;
  arguments.insert(arguments.end(), {flag, value});
  const Outcome outcome = run_nibble(arguments);
  const std::string name = command[0] == "bench" ? "bench " + command[1] : command[0];
  EXPECT_EQ(outcome.status, 2) << flag << " " << value << "\n" << outcome.err;
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(outcome.err,
              AllOf(StartsWith("error: " + flag), HasSubstr("found:    " + value), HasSubstr("expected: " + expected),
                    HasSubstr("see nibble " + name + " --help"), Not(HasSubstr(kNoModel))));
}

const std::vector<std::string> kRun = {"run", kNoModel, "-p", "x"};
const std::vector<std::string> kChat = {"chat", kNoModel};

TEST(Usage, SamplingFlagsAreCheckedBeforeAModelIsOpened) {
  for (const std::vector<std::string>& command : {kRun, kChat}) {
    expect_refused(command, "--temp", "nan", "a number");
    expect_refused(command, "--temp", "1e308", "a number from -3.4028235e+38 to 3.4028235e+38");
    expect_refused(command, "--temp", "-1", "0 (greedy)");
    expect_refused(command, "--temp", "warm", "a number");
    expect_refused(command, "--top-p", "2", "in (0, 1]");
    expect_refused(command, "--top-k", "-3", "a whole number from 0");
    expect_refused(command, "--min-p", "1.5", "in [0, 1]");
    expect_refused(command, "--repeat-penalty", "0", "positive");
    expect_refused(command, "--presence-penalty", "inf", "a number");
    expect_refused(command, "--repeat-last-n", "-2", "a whole number from -1");
    expect_refused(command, "--seed", "-1", "a whole number from 0 to 18446744073709551615");
    expect_refused(command, "--seed", "18446744073709551616", "a whole number from 0");
    for (const char* bias : {"garbage", "5abc=1", "5=", "=1", "5=nan", "-1=2", "5=1=2"}) {
      std::vector<std::string> arguments = command;
      arguments.insert(arguments.end(), {"--logit-bias", bias});
      const Outcome outcome = run_nibble(arguments);
      EXPECT_EQ(outcome.status, 2) << bias;
      EXPECT_THAT(outcome.err, AllOf(StartsWith("error: --logit-bias"), HasSubstr("expected: "))) << bias;
    }
  }
}

// What cannot be used is named with its reason and not offered.
TEST(Usage, OnlyBackendsThatAreHereAreOffered) {
  for (const std::vector<std::string>& command : {std::vector<std::string>{"run"}, {"bench", "op"}}) {
    std::vector<std::string> help = command;
    help.emplace_back("--help");
    EXPECT_THAT(run_nibble(help).out, HasSubstr("metal: nibble has no Metal kernels yet"));
    std::vector<std::string> wrong = command;
    wrong.insert(wrong.end(), {"--backend", "tpu"});
    const Outcome refused = run_nibble(wrong);
    EXPECT_EQ(refused.status, 2);
    EXPECT_THAT(refused.err, AllOf(HasSubstr("cpu, reference"), Not(HasSubstr("metal"))));
  }
  const Outcome metal = run_nibble({"bench", "op", "--backend", "metal", "--shape", "16x64"});
  EXPECT_EQ(metal.status, 1);
  EXPECT_THAT(metal.err, HasSubstr("nibble has no Metal kernels yet"));
}

TEST(Usage, FlagsOfMachineAndSessionToo) {
  expect_refused(kRun, "--backend", "tpu", "one of: auto, ");
  expect_refused(kRun, "--isa", "altivec", "one of: auto, ");
  expect_refused(kRun, "--contract", "nc9", "one of: nc1, nk1, nc1-f16, w4a4, native, native-fp4");
  expect_refused(kRun, "--threads", "-1", "a whole number from 0 to 1024");
  expect_refused(kRun, "--threads", "1.5", "a whole number from 0 to 1024");
  expect_refused(kRun, "--ctx", "99999999999", "a whole number from 0");
  expect_refused(kRun, "--chunk", "0", "a whole number from 1");
  expect_refused({"replay", "no/such/receipt.json", "--model", kNoModel}, "--isa", "altivec", "one of: auto, ");
  expect_refused({"quantize", kNoModel, "-o", "out.gguf"}, "--head", "q4", "one of: f16, keep, q8_0, fp8, nvfp4");
  expect_refused({"quantize", kNoModel, "-o", "out.gguf"}, "--head", "2", "one of: f16, keep, q8_0, fp8, nvfp4");
  expect_refused({"quantize", kNoModel, "-o", "out.gguf"}, "--recipe", "min", "one of: max, ");
}

TEST(Usage, FlagsOfTheMeasuringCommandsToo) {
  const std::vector<std::string> op = {"bench", "op"}, decode = {"bench", "decode", kNoModel};
  expect_refused(op, "--format", "q9", "one of: nvfp4, f16, bf16, fp8, q4_0");
  expect_refused(op, "--shape", "3x", "NxK, such as 14336x4096");
  expect_refused(op, "--shape", "3x40", "K a multiple of 16");
  expect_refused(op, "--isa", "altivec", "one of: all, ");
  expect_refused(op, "--tokens", "0", "a whole number from 1 to 65536");
  expect_refused(op, "--threads", "1.5", "a whole number from 1 to 1024");
  expect_refused(op, "--backend", "auto", "one of: ");
  expect_refused(decode, "--contract", "nc9", "one of: nc1, nk1, nc1-f16, w4a4, native, native-fp4, float");
  expect_refused(decode, "--repetitions", "2", "a whole number from 5 to 10000");
  expect_refused(decode, "--warmups", "0", "a whole number from 1 to 100");
  expect_refused(decode, "--n-tokens", "0", "a whole number from 1");
  expect_refused(decode, "--prefix", "-4", "a whole number from 1");
  expect_refused(decode, "--against", "vllm", "one of: llama.cpp");
  const std::vector<std::string> ppl = {"ppl", kNoModel, "-f", "no/such.txt"};
  expect_refused(ppl, "--window", "1", "a whole number from 2 to 1048576");
  expect_refused(ppl, "--stride", "-1", "a whole number from 0");
  expect_refused(ppl, "--max-tokens", "x", "a whole number from 0");
  expect_refused(ppl, "--max-ppl", "nan", "a number from 0");
  expect_refused(ppl, "--contract", "nc9", "one of: nc1, nk1, nc1-f16, w4a4, native, native-fp4, float");
  const std::vector<std::string> compare = {"compare", kNoModel, kNoModel, "-f", "no/such.txt"};
  expect_refused(compare, "--max-kl", "-1", "a number from 0");
  expect_refused(compare, "--min-top1", "2", "a number from 0 to 1");
}

TEST(Usage, AListHasNoEmptyElements) {
  const std::pair<const char*, const char*> lists[] = {
      {"-m", "1"}, {"--threads", "1"}, {"--format", "nvfp4"}, {"--shape", "64x64"}, {"--isa", "scalar"}};
  for (const auto& [flag, value] : lists) {
    const std::string name = std::string(flag) == "-m" ? "--tokens" : flag, one = value;
    for (const std::string& wrong : {one + ",", "," + one, one + ",," + one, std::string(",")}) {
      const Outcome outcome = run_nibble({"bench", "op", flag, wrong});
      EXPECT_EQ(outcome.status, 2) << flag << " " << wrong;
      EXPECT_THAT(outcome.err, StartsWith("error: " + name + " has an empty element\n  found:    '" + wrong + "'\n"));
    }
  }
  for (const char* flag : {"--a", "--b"}) {
    const Outcome outcome = run_nibble({"compare", kNoModel, kNoModel, "-f", "x", flag, "isa=scalar,"});
    EXPECT_EQ(outcome.status, 2) << flag;
    EXPECT_THAT(outcome.err, StartsWith("error: " + std::string(flag) + ": '' is not a setting"));
  }
}

TEST(Usage, SettingsAndCombinationsAreCheckedBeforeAModelIsOpened) {
  const auto refused = [](const std::vector<std::string>& arguments, const std::string& words) {
    const Outcome outcome = run_nibble(arguments);
    EXPECT_EQ(outcome.status, 2) << outcome.err;
    EXPECT_THAT(outcome.err, AllOf(HasSubstr(words), HasSubstr("found: "), Not(HasSubstr(kNoModel))));
  };
  refused({"compare", kNoModel, kNoModel, "-f", "x", "--a", "contract=nc9"}, "--a: contract cannot be 'nc9'");
  refused({"compare", kNoModel, kNoModel, "-f", "x", "--b", "threads=x"}, "--b: 'x' is not a value of 'threads'");
  refused({"compare", kNoModel, kNoModel, "-f", "x", "--b", "model=x.gguf"}, "--b: a model cannot be set");
  refused({"bench", "decode", kNoModel, "--vs", "speed=2"}, "--vs: 'speed=2' is not a setting");
  refused({"bench", "prefill", kNoModel, "--vs", "backend=tpu"}, "--vs: backend cannot be 'tpu'");
  refused({"ppl", kNoModel, "-f", "x", "--stride", "600"}, "--stride cannot be more than --window");
  refused({"run", kNoModel, "-p", "x", "--backend", "reference", "--isa", "avx2"}, "no instruction sets to choose");
  refused({"bench"}, "nibble bench needs a command");
  // Float arithmetic is plain loops of its own.
  refused({"ppl", kNoModel, "-f", "x", "--contract", "float", "--backend", "cpu"}, "contract float has no backends");
  refused({"bench", "decode", kNoModel, "--contract", "float", "--isa", "scalar"}, "contract float has no backends");
  refused({"bench", "decode", kNoModel, "--vs", "contract=float,backend=cpu"}, "--vs: contract float has no backends");
  refused({"compare", kNoModel, kNoModel, "-f", "x", "--a", "contract=float,isa=scalar"}, "--a: contract float has no");
  refused({"bench", "decode", kNoModel, "--backend", "cpu", "--vs", "contract=float"}, "--vs: contract float has no");
}

// Nothing where a path, a name or a command should be is no way of leaving the flag out.
TEST(Usage, AnEmptyValueIsNoValue) {
  const std::vector<std::string> run = {"run", kNoModel}, ppl = {"ppl", kNoModel, "-f", "x"},
                                 compare = {"compare", kNoModel, kNoModel, "-f", "x"},
                                 decode = {"bench", "decode", kNoModel}, report = {"report", kNoModel, "-o", "x"};
  const auto refused = [](std::vector<std::string> arguments, const std::string& flag, const std::string& name) {
    arguments.insert(arguments.end(), {flag, ""});
    const Outcome outcome = run_nibble(arguments);
    EXPECT_EQ(outcome.status, 2) << flag;
    EXPECT_EQ(outcome.out, "");
    EXPECT_THAT(
        outcome.err,
        AllOf(StartsWith("error: " + name + " needs a value\n  found:    an empty one\n  expected: "),
              HasSubstr("\n  hint:     see nibble " + arguments[0]), HasSubstr(" --help\n"), Not(HasSubstr(kNoModel))));
  };
  for (const char* flag : {"--receipt", "--file"}) refused(run, flag, flag);
  refused(run, "-f", "--file");
  refused(ppl, "-o", "--output");
  refused({"ppl", kNoModel}, "-f", "--file");
  for (const char* flag : {"--a", "--b", "--output"}) refused(compare, flag, flag);
  for (const char* flag : {"--vs", "--vs-command", "--file", "--output"}) refused(decode, flag, flag);
  for (const char* flag : {"--python", "--llama-bench", "--against-model"}) {
    refused({"bench", "decode", kNoModel, "--against", "llama.cpp"}, flag, flag);
  }
  refused({"bench", "op", "--against", "ggml"}, "--python", "--python");
  refused({"bench", "op"}, "-o", "--output");
  refused({"bench", "soak", kNoModel}, "-o", "--output");
  refused({"inspect", kNoModel}, "--tensor", "--tensor");
  for (const char* flag : {"--source", "--quality", "--speed", "--svg"}) refused(report, flag, flag);
  refused({"report", kNoModel}, "-o", "--output");
  refused({"quantize", kNoModel}, "-o", "--output");
  refused({"replay", "x"}, "--model", "--model");
  for (const char* command : {"inspect", "verify", "run", "chat", "ppl", "report"}) {
    const Outcome outcome = run_nibble({command, ""});
    EXPECT_EQ(outcome.status, 2) << command;
    EXPECT_THAT(outcome.err, StartsWith("error: MODEL needs a value")) << command;
  }
}

TEST(Usage, TheShortNameOfAFlagLeadsToItsLongOne) {
  const Outcome outcome = run_nibble({"run", kNoModel, "-p", "x", "-n", "-1"});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_EQ(outcome.err,
            "error: --n-predict cannot be '-1'\n  found:    -1\n  expected: a whole number from 0 to 2147483647\n"
            "  hint:     see nibble run --help\n");
}

TEST(Usage, TextMustBeUtf8) {
  for (const char* flag : {"-p", "--system", "--stop"}) {
    const Outcome outcome = run_nibble({"run", kNoModel, "--chat", flag, "ab\xFFz"});
    EXPECT_EQ(outcome.status, 2) << flag;
    EXPECT_THAT(outcome.err, AllOf(HasSubstr("is not valid UTF-8"), HasSubstr("byte 0xFF at offset 2"))) << flag;
  }
}

TEST(Usage, WhatIsMissingIsNamed) {
  EXPECT_THAT(run_nibble({"inspect"}).err, StartsWith("error: nibble inspect needs MODEL"));
  EXPECT_THAT(run_nibble({"quantize", kNoModel}).err, StartsWith("error: nibble quantize needs --output"));
  EXPECT_THAT(run_nibble({"run", kNoModel}).err, StartsWith("error: nibble run needs a prompt"));
  EXPECT_THAT(run_nibble({"run", kNoModel, "-p"}).err, StartsWith("error: --prompt needs a value"));
  EXPECT_THAT(run_nibble({"run", kNoModel, "-p", "x", "--seed", "1", "--seed", "2"}).err,
              StartsWith("error: --seed is given 2 times"));
  EXPECT_THAT(run_nibble({"run", kNoModel, "-p", "x", "-f", "y"}).err, StartsWith("error: --"));
  EXPECT_THAT(run_nibble({"run", kNoModel, "-p", "x", "--system", "y"}).err, StartsWith("error: --system"));
  for (const std::vector<std::string>& arguments : std::vector<std::vector<std::string>>{
           {"inspect"}, {"run", kNoModel}, {"run", kNoModel, "-p"}, {"run", kNoModel, "-p", "x", "-f", "y"}}) {
    const Outcome outcome = run_nibble(arguments);
    EXPECT_EQ(outcome.status, 2);
    EXPECT_THAT(outcome.err, HasSubstr("see nibble " + arguments[0] + " --help"));
  }
}

TEST(Usage, UnknownCommandsAndFlagsAreNamed) {
  const Outcome command = run_nibble({"rnu", kNoModel});
  EXPECT_EQ(command.status, 2);
  EXPECT_EQ(command.err,
            "error: there is no command 'rnu'\n  found:    rnu\n"
            "  expected: doctor, inspect, verify, quantize, run, chat, replay, bench, ppl, compare, report\n  hint:    "
            " see nibble --help\n");
  const Outcome flag = run_nibble({"run", kNoModel, "-p", "x", "--tmep=1"});
  EXPECT_EQ(flag.status, 2);
  EXPECT_THAT(flag.err, StartsWith("error: nibble run does not know the flag '--tmep=1'"));
  EXPECT_THAT(run_nibble({"verify", "a", "b"}).err,
              StartsWith("error: nibble verify does not expect the argument 'b'"));
  EXPECT_THAT(run_nibble({"--tmep"}).err, StartsWith("error: nibble does not know the flag '--tmep'"));
}

TEST(Usage, HelpIsForThoseWhoAsk) {
  const Outcome help = run_nibble({"run", "--help"});
  EXPECT_EQ(help.status, 0);
  EXPECT_EQ(help.err, "");
  EXPECT_THAT(help.out, AllOf(HasSubstr("--logit-bias"), HasSubstr("--isa")));
  const Outcome nothing = run_nibble({});  // nor is anybody left without a word
  EXPECT_EQ(nothing.status, 2);
  EXPECT_THAT(nothing.err, AllOf(HasSubstr("quantize"), HasSubstr("replay")));
}

}  // namespace
}  // namespace nibble::testing
