// What a person sees of the commands on a small model, where it went wrong once.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/apps/run_nibble.h"
#include "tests/engine/tiny_model.h"

namespace nibble::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

std::string tiny(const TinySpec& spec = {}) {
  return write_tiny_model(spec, "apps.gguf");
}

TEST(Commands, ARunAndItsReplay) {
  const std::string model = tiny();
  const std::string receipt = test_folder() + "/receipt.json";
  const Outcome run = run_nibble({"run", model, "-p", "the", "-n", "3", "--receipt", receipt});
  EXPECT_EQ(run.status, 0) << run.err;
  const Outcome replay = run_nibble({"replay", receipt, "--model", model, "--isa", "scalar", "--threads", "2"});
  EXPECT_EQ(replay.status, 0) << replay.err;
  EXPECT_THAT(replay.out, StartsWith("identical: "));
}

TEST(Commands, AReceiptOfNothingIsNoProof) {
  const std::string model = tiny();
  const std::string receipt = test_folder() + "/receipt.json";
  ASSERT_EQ(run_nibble({"run", model, "-p", "the", "-n", "0", "--receipt", receipt}).status, 0);
  const Outcome nothing = run_nibble({"replay", receipt, "--model", model});
  EXPECT_EQ(nothing.status, 1);
  EXPECT_THAT(nothing.err, AllOf(HasSubstr("nothing to compare"), HasSubstr("0 tokens"), HasSubstr("--digest-prompt")));
  ASSERT_EQ(run_nibble({"run", model, "-p", "the", "-n", "0", "--digest-prompt", "--receipt", receipt}).status, 0);
  EXPECT_THAT(run_nibble({"replay", receipt, "--model", model}).out, StartsWith("identical: "));
}

// Before the work starts: the model that would be loaded does not exist.
TEST(Commands, OutputPathsAreTriedFirst) {
  const std::string model = tiny();
  const std::string folder = test_folder();
  for (const std::string& path : {folder + "/none/out", folder, std::string("/dev/null"), std::string("/proc/out")}) {
    const Outcome run = run_nibble({"run", "no/such/model.gguf", "-p", "x", "--receipt", path});
    EXPECT_EQ(run.status, 1) << path;
    EXPECT_THAT(run.err, AllOf(HasSubstr(path), Not(HasSubstr("no/such/model.gguf")))) << path;
    const Outcome quantize = run_nibble({"quantize", model, "-o", path});
    EXPECT_EQ(quantize.status, 1) << path;
    EXPECT_THAT(quantize.err, AllOf(HasSubstr(path), Not(HasSubstr("hashing")))) << path;
  }
  std::size_t left = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    left += entry.path().filename().string().find(".partial") != std::string::npos ? 1 : 0;
  }
  EXPECT_EQ(left, 0u);
}

TEST(Commands, InspectShowsTheScalesOfAWeight) {
  const Outcome outcome = run_nibble({"inspect", tiny(), "--tensor", "blk.0.attn_q.weight.nvfp4_scale"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("F8_E4M3FN"), HasSubstr("first values"), HasSubstr("rms")));
}

TEST(Commands, MetadataIsCalledAKey) {
  const Outcome outcome = run_nibble({"verify", tiny({.architecture = "mamba"})});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("key:      general.architecture"), Not(HasSubstr("tensor: "))));
  const Outcome json = run_nibble({"verify", "--json", tiny({.architecture = "mamba"})});
  EXPECT_THAT(json.out, HasSubstr(R"("tensor": "general.architecture")"));  // the field of a fault's subject
}

TEST(Commands, InvalidUtf8IsTheInputsFault) {
  const std::string model = tiny();
  const std::string file = test_folder() + "/prompt.txt";
  std::ofstream(file) << "abc\xFF";
  const Outcome run = run_nibble({"run", model, "--chat", "-f", file});
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.err, AllOf(HasSubstr("is not valid UTF-8"), HasSubstr("offset 3"), HasSubstr(file)));
  const Outcome chat = run_shell(R"(printf 'hi\377\n' | )" + nibble_program() + " chat " + quoted(model) + " -n 1");
  EXPECT_EQ(chat.status, 1);
  EXPECT_THAT(chat.err, AllOf(HasSubstr("the content of the user is not valid UTF-8"), HasSubstr("0xFF at offset 2"),
                              Not(HasSubstr("template"))));
}

TEST(Commands, NonFiniteValuesNameTheFile) {
  const std::string model = tiny({.norm_weight = INFINITY});
  const Outcome outcome = run_nibble({"run", model, "-p", "the", "-n", "1"});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("not finite"), HasSubstr("file:     " + model)));
}

// A hint names flags of the command that was called, and of no other.
TEST(Commands, HintsNameTheFlagsOfTheCommandAtHand) {
  const std::string text = test_folder() + "/text.txt";
  std::ofstream(text) << "the the the";
  const std::string model = tiny();
  EXPECT_THAT(run_nibble({"run", model, "-p", "the", "--ctx", "600"}).err, HasSubstr("hint:     pass a smaller --ctx"));
  EXPECT_THAT(run_nibble({"ppl", model, "-f", text, "--window", "600"}).err,
              AllOf(HasSubstr("pass a smaller --window"), Not(HasSubstr("--ctx"))));
  EXPECT_THAT(run_nibble({"bench", "prefill", model, "-n", "600"}).err,
              AllOf(HasSubstr("600"), Not(HasSubstr("--ctx"))));
  const std::string kquant =
      write_tiny_model({.d_model = 256, .d_ff = 512, .head_dim = 64, .lane = Lane::kKquant}, "kquant.gguf");
  EXPECT_THAT(run_nibble({"run", kquant, "-p", "the", "--contract", "nc1"}).err, HasSubstr("use --contract nk1"));
  EXPECT_THAT(run_nibble({"compare", kquant, kquant, "--a", "contract=nc1", "-f", text}).err,
              AllOf(HasSubstr("use contract=nk1 in --a or --b"), Not(HasSubstr("--contract"))));
  EXPECT_THAT(run_nibble({"run", kquant, "-p", "the", "--lane", "nvfp4"}).err, HasSubstr("leave --lane out"));
  // The contract and the lane of a replay are the receipt's.
  const std::string receipt = test_folder() + "/receipt.json";
  ASSERT_EQ(run_nibble({"run", kquant, "-p", "the", "-n", "1", "--receipt", receipt}).status, 0);
  for (const std::string change : {"s/\"nk1\"/\"nc1\"/", "s/\"nk1\"/\"w4a4\"/", "s/\"kquant\"/\"nvfp4\"/"}) {
    const std::string changed = receipt + ".changed";
    run_shell("sed '" + change + "' " + quoted(receipt) + " >" + quoted(changed));
    const Outcome replay = run_nibble({"replay", changed, "--model", kquant});
    EXPECT_EQ(replay.status, 1) << change;
    EXPECT_THAT(replay.err, AllOf(Not(HasSubstr("--contract")), Not(HasSubstr("--lane")), Not(HasSubstr("{"))))
        << change;
  }
}

// Another model is called that, whatever else would be wrong with it.
TEST(Commands, AReplayWithAnotherModelNamesBoth) {
  const std::string model = tiny(), receipt = test_folder() + "/receipt.json";
  ASSERT_EQ(run_nibble({"run", model, "-p", "the", "-n", "1", "--receipt", receipt}).status, 0);
  const std::string other =
      write_tiny_model({.d_model = 256, .d_ff = 512, .head_dim = 64, .lane = Lane::kKquant}, "other.gguf");
  const Outcome replay = run_nibble({"replay", receipt, "--model", other});
  EXPECT_EQ(replay.status, 1);
  EXPECT_THAT(replay.err,
              AllOf(StartsWith("error: the receipt was made with another model file, apps.gguf\n  file:     " + other),
                    HasSubstr("model_sha256 of " + receipt)));
}

TEST(Commands, AnEditedReceiptIsNamedWithItsKey) {
  const std::string model = tiny(), receipt = test_folder() + "/receipt.json", edited = test_folder() + "/edited.json";
  ASSERT_EQ(run_nibble({"run", model, "-p", "the", "-n", "1", "--receipt", receipt}).status, 0);
  const auto refused = [&](const std::string& edit, const std::string& key, const std::string& found) {
    run_shell("tr -d '\\n' <" + quoted(receipt) + " | sed -E " + quoted(edit) + " >" + quoted(edited));
    const Outcome replay = run_nibble({"replay", edited, "--model", model});
    EXPECT_EQ(replay.status, 1) << edit;
    EXPECT_THAT(replay.err, AllOf(HasSubstr("file:     " + edited + "\n  key:      " + key + "\n  found:    " + found),
                                  HasSubstr("expected: ")))
        << edit;
  };
  refused(R"(s/"prompt_tokens": \[/&1,9999999,/)", "prompt_tokens[1]", "9999999");
  refused(R"(s/"prompt_tokens": \[[^]]*/"prompt_tokens": [/)", "prompt_tokens", "[]");
  refused(R"(s/"prompt_tokens": \[/&1,1,/; s/"n_ctx": [0-9]+/"n_ctx": 2/)", "prompt_tokens", "");
  refused(R"(s/"nc1"/"nc9"/)", "contract", "\"nc9\"");
  refused(R"(s/"n_ctx"/"tempo": 1, &/)", "tempo", "1");
}

// What was recorded in one arithmetic is never repeated in another: a receipt of native wants a GPU.
TEST(Commands, ReceiptsOfNativeAreNotReplayedInOtherArithmetic) {
  const std::string model = tiny();
  const std::string receipt = test_folder() + "/receipt.json", native = test_folder() + "/native.json";
  ASSERT_EQ(run_nibble({"run", model, "-p", "the", "-n", "2", "--backend", "cpu", "--receipt", receipt}).status, 0);
  ASSERT_EQ(run_nibble({"replay", receipt, "--model", model, "--backend", "cpu"}).status, 0);
  run_shell("sed 's/\"nc1\"/\"native\"/' " + quoted(receipt) + " >" + quoted(native));
  const Outcome replay = run_nibble({"replay", native, "--model", model, "--backend", "cpu"});
  EXPECT_EQ(replay.status, 1);
  EXPECT_THAT(replay.err, AllOf(HasSubstr("native"), HasSubstr("use --backend cuda"), Not(HasSubstr("--contract"))));
  const Outcome run = run_nibble({"run", model, "-p", "the", "-n", "1", "--backend", "cpu", "--contract", "native"});
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.err, AllOf(HasSubstr("use --backend cuda"), HasSubstr("--contract nc1")));
}

// An instruction set in the environment is a wish like --isa: a typo never ends on another backend.
TEST(Commands, AWrongInstructionSetInTheEnvironmentIsRefusedEverywhere) {
  const std::string run = " run " + quoted(tiny()) + " -p the -n 1";
  const std::string op = " bench op --quick --from-cache --threads 1 -m 1 --shape 32x64";
  for (const std::string& command : {run, run + " --backend cpu", run + " --backend reference", op}) {
    const Outcome outcome = run_shell("NIBBLE_ISA=abacus " + nibble_program() + command);
    EXPECT_EQ(outcome.status, 1) << command << outcome.err;
    EXPECT_THAT(outcome.err, AllOf(HasSubstr("error: NIBBLE_ISA"), HasSubstr("abacus"), HasSubstr("one of: auto, ")));
  }
  EXPECT_EQ(run_shell("NIBBLE_ISA=abacus " + nibble_program() + run + " --isa scalar").status, 0);
  const Outcome scalar = run_shell("NIBBLE_ISA=scalar " + nibble_program() + op);
  EXPECT_EQ(scalar.status, 0) << scalar.err;
  EXPECT_THAT(scalar.err, HasSubstr(" scalar "));
}

// What a person reads and what a program reads of one run are the same numbers.
TEST(Commands, BenchOpSaysInTextWhatItsJsonSays) {
  const Outcome outcome = run_nibble(
      {"bench", "op", "--quick", "--json", "--from-cache", "--shape", "48x64", "--threads", "1", "-m", "1,17"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const auto json = nlohmann::json::parse(outcome.out);
  ASSERT_EQ(json["rows"].size(), 2u);
  for (const auto& row : json["rows"]) {
    EXPECT_EQ(row["share"].get<double>(), row["achieved"].get<double>() / row["limit"].get<double>());
    EXPECT_THAT(outcome.err, HasSubstr(fmt::format("{:3.0f} % of {:.1f} ", 100 * row["share"].get<double>(),
                                                   row["limit"].get<double>())));
  }
}

TEST(Commands, WithoutADigestLogitsAreNotCompared) {
  const Outcome outcome = run_nibble(
      {"bench", "decode", tiny(), "-n", "1", "--repetitions", "5", "--warmups", "1", "--vs-command", "exit 0"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("logits after the last token: not compared"), Not(HasSubstr("bits")),
                                 HasSubstr("work: not compared")));
}

TEST(Commands, TimesOfDifferentWorkAreNotCompared) {
  const std::string one = nibble_program() + " bench decode " + quoted(tiny()) + " --prefix 4 --one -n ";
  const auto bench_beside = [](const std::string& other) {
    return run_nibble({"bench", "decode", tiny(), "-n", "3", "--prefix", "4", "--repetitions", "5", "--warmups", "1",
                       "--vs-command", other});
  };
  const Outcome same = bench_beside(one + "3");
  EXPECT_EQ(same.status, 0) << same.err;
  EXPECT_THAT(same.err,
              AllOf(HasSubstr("of B's speed"), HasSubstr("the same, bit for bit"), Not(HasSubstr("compared"))));
  const Outcome more = bench_beside(one + "5");
  EXPECT_EQ(more.status, 1);
  EXPECT_THAT(more.err, AllOf(HasSubstr("are not compared"), HasSubstr("timed_tokens 5"), HasSubstr("timed_tokens 3"),
                              Not(HasSubstr("of B's speed"))));
}

TEST(Commands, APeerOfAnotherVocabularyIsRefused) {
  const std::string model = tiny();
  const std::string other = test_folder() + "/other.gguf";
  ASSERT_EQ(run_shell("sed 's/<|im_start|>/<|im_begin|>/g' " + quoted(model) + " >" + quoted(other)).status, 0);
  const std::string text = test_folder() + "/text.txt";
  std::ofstream(text) << "the the the";
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"compare", model, other, "-f", text},
        {"bench", "decode", model, "-n", "1", "--vs", "model=" + other},
        {"bench", "decode", model, "-n", "1", "--against", "llama.cpp", "--against-model", other}}) {
    const Outcome outcome = run_nibble(command);
    EXPECT_EQ(outcome.status, 1) << command[0];
    EXPECT_THAT(outcome.err, AllOf(HasSubstr("the two models do not have the same tokens"), HasSubstr(other)));
  }
}

// A shell starts a job with SIGINT ignored; a person's terminal does not.
std::string started_by_a_person() {
  return "env --default-signal=INT " + nibble_program();
}

TEST(Commands, ControlCAtThePromptLeavesChat) {
  const std::string folder = quoted(test_folder());
  const Outcome outcome =
      run_shell("cd " + folder + " && mkfifo input && {\n" + started_by_a_person() + " chat " + quoted(tiny()) +
                " -n 1 <input >answer & pid=$!\n"
                "exec 3>input; echo hi >&3\n"
                "until [ -s answer ]; do sleep 0.1; done; sleep 0.5\n"
                "kill -INT $pid; wait $pid; }");
  EXPECT_EQ(outcome.status, 0) << outcome.err;
}

// Commands without something to sum up end by the signal itself, which a shell calls 130.
TEST(Commands, ControlCEndsMeasurementsAtOnce) {
  const std::string model = quoted(tiny({.context_length = 1U << 20}));
  const std::string folder = quoted(test_folder());
  ASSERT_EQ(run_shell("cd " + folder + " && yes the | head -n 60000 | tr '\\n' ' ' >long.txt").status, 0);
  for (const std::string& command : std::vector<std::string>{
           "ppl " + model + " -f long.txt --window 60000 -o out.json",
           "compare " + model + " " + model + " --a contract=float -f long.txt --window 60000 -o out.json",
           "bench decode " + model + " -n 10000 --repetitions 10000 -o out.json", "bench op --threads 1 -o out.json"}) {
    const Outcome outcome =
        run_shell("cd " + folder + " && {\n" + started_by_a_person() + " " + command +
                  " & pid=$!\n"
                  "for i in $(seq 200); do grep -q nibble /proc/$pid/comm && break; sleep 0.05; done\n"
                  "sleep 0.3\n"
                  "kill -INT $pid; wait $pid; }");
    EXPECT_EQ(outcome.status, 130) << command << outcome.err;
    EXPECT_EQ(run_shell("cd " + folder + " && ls | grep out.json").out, "") << command;
  }
}

// quantize tidies up first, and has the status of the signal all the same.
TEST(Commands, AStoppedQuantizeHasTheStatusOfItsSignal) {
  const std::string model = quoted(tiny({.d_model = 1024, .d_ff = 4096, .head_dim = 64, .lane = Lane::kKquant}));
  const std::string folder = quoted(test_folder());
  for (const auto& [signal, status] : {std::pair{"INT", 130}, {"TERM", 143}, {"HUP", 129}}) {
    const Outcome outcome =
        run_shell("cd " + folder + " && {\nenv --default-signal " + nibble_program() + " quantize " + model +
                  " -o stopped.gguf --threads 1 & pid=$!\n"
                  "until ls -l /proc/$pid/fd | grep -Eq 'deleted|stopped.gguf'; do sleep 0.01; done\n"
                  "kill -" +
                  signal + " $pid; wait $pid; }");
    EXPECT_EQ(outcome.status, status) << signal << outcome.err;
    EXPECT_EQ(run_shell("cd " + folder + " && ls | grep stopped.gguf").out, "") << signal;
  }
}

TEST(Commands, AnInterruptedAnswerIsSummedUpAndRecorded) {
  const std::string model = tiny({.context_length = 1U << 20});
  const std::string folder = quoted(test_folder());
  const std::string endless =
      " run " + quoted(model) + " -p the -n 100000 --ignore-eos --ctx 200000 --receipt receipt.json";
  const auto interrupt = [&](const std::string& program, const std::string& kill) {
    return run_shell("cd " + folder + " && rm -f text receipt.json && {\n" + program + endless +
                     " >text & pid=$!\n"
                     "until [ -s text ]; do sleep 0.1; done\n" +
                     kill + "; wait $pid; }");
  };
  for (const auto& [signal, status] : {std::pair<std::string, int>{"INT", 130}, {"TERM", 143}}) {
    const Outcome outcome = interrupt(started_by_a_person(), "kill -" + signal + " $pid");
    EXPECT_EQ(outcome.status, status) << signal << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("receipt   receipt.json"));
    const Outcome replay =
        run_shell("cd " + folder + " && " + nibble_program() + " replay receipt.json --model " + quoted(model));
    EXPECT_EQ(replay.status, 0) << replay.err;
  }
  // A job that started with Ctrl-C ignored goes on.
  const Outcome job =
      interrupt(nibble_program(), "kill -INT $pid; sleep 0.3; kill -0 $pid && kill -TERM $pid && echo went on");
  EXPECT_THAT(job.out, HasSubstr("went on"));
}

}  // namespace
}  // namespace nibble::testing
