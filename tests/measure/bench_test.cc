// What is timed is checked here; how long it took is nobody's business in a test.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <memory>
#include <set>

#include "kernels/limits.h"
#include "measure/ggml_peer.h"
#include "measure/model_bench.h"
#include "measure/op_bench.h"
#include "measure/op_data.h"
#include "measure/soak.h"
#include "tests/engine/tiny_model.h"

namespace nibble::measure {
namespace {

using nibble::testing::test_folder;
using nibble::testing::write_tiny_model;

std::string write_program(const std::string& name, const std::string& text) {
  const std::string path = test_folder() + "/" + name;
  std::ofstream(path) << text;
  chmod(path.c_str(), 0755);
  return path;
}

TEST(OpBench, RowsOfEveryFormatCarryTheDigestOfTheContract) {
  OpOptions options;
  options.shapes = {{48, 256}};
  options.formats = op_formats();
  options.isas = {"scalar"};
  options.threads = {2};
  options.tokens = {1, 17};
  options.from_cache = true;
  options.row_seconds = 0;
  const auto json = bench_ops(options);
  ASSERT_TRUE(json.ok()) << json.error().to_string();
  const Json& rows = (*json)["rows"];
  std::map<std::string, std::string> digests;
  for (const Json& row : rows) {
    for (const char* key : {"op", "format", "m", "n", "k", "isa", "threads", "median_s", "cv", "bytes", "ops", "limit",
                            "share", "digest", "data", "repetitions"}) {
      EXPECT_TRUE(row.contains(key)) << key;
    }
    const std::string work = row["format"].get<std::string>() + row["op"].get<std::string>();
    const auto [it, is_new] = digests.emplace(work, row["digest"].get<std::string>());
    EXPECT_EQ(it->second, row["digest"]) << work;
  }
  EXPECT_EQ(digests.size(), 2 * options.formats.size());  // no two formats, nor sizes, have the same outputs
  std::set<std::string> distinct;
  for (const auto& [work, digest] : digests) distinct.insert(digest);
  EXPECT_EQ(distinct.size(), digests.size());
  EXPECT_EQ(rows.size(), digests.size());
  EXPECT_EQ(rows[0]["bytes"], 48 * 256 / 2 + 48 * 256 / 16);
  EXPECT_EQ(rows[0]["ops"], 2.0 * 48 * 256);
}

TEST(OpBench, EveryInstructionSetHasARow) {
  const auto json = bench_ops(
      {.shapes = {{32, 64}}, .isas = {"all"}, .threads = {2}, .tokens = {1, 17}, .from_cache = true, .row_seconds = 0});
  ASSERT_TRUE(json.ok()) << json.error().to_string();
  EXPECT_EQ((*json)["rows"].size(), 2 * kernels::cpu_isa_names().size());
}

// Rows end anywhere that their format allows, within a block of 64 as well.
TEST(OpBench, EveryLengthOfARowThatTheContractHas) {
  const auto run = [](const std::string& format, std::vector<OpShape> shapes) {
    return bench_ops({.shapes = std::move(shapes),
                      .formats = {format},
                      .isas = {"all"},
                      .threads = {2},
                      .tokens = {1, 17},
                      .from_cache = true,
                      .row_seconds = 0,
                      .quick = true});  // measures its limits once
  };
  const std::pair<const char*, std::vector<OpShape>> cases[] = {
      {"nvfp4", {{17, 16}, {3, 48}, {17, 80}, {1, 144}}}, {"f16", {{5, 7}, {17, 65}}}, {"q8_0", {{17, 32}, {17, 96}}}};
  for (const auto& [format, shapes] : cases) {
    const auto json = run(format, shapes);
    ASSERT_TRUE(json.ok()) << json.error().to_string();
    EXPECT_EQ((*json)["rows"].size(), 2 * shapes.size() * kernels::cpu_isa_names().size());
  }
  EXPECT_EQ(run("nvfp4", {{16, 40}}).error().expected, "a multiple of 16");
  EXPECT_EQ(run("q4_k", {{16, 128}}).error().expected, "a multiple of 256");
}

// A matrix of a few bytes is not copied until they fill the memory.
TEST(OpBench, ASmallMatrixIsInTheCacheAndSaysSo) {
  const auto json =
      bench_ops({.shapes = {{1, 16}}, .isas = {"scalar"}, .threads = {1}, .tokens = {1}, .row_seconds = 0});
  ASSERT_TRUE(json.ok()) << json.error().to_string();
  EXPECT_EQ((*json)["rows"][0]["data"], "cache");
}

TEST(OpBench, AQuickRunSharesItsTimeAndNamesWhatItLeftOut) {
  OpOptions options{.shapes = {{48, 64}, {16, 96}},
                    .formats = {"nvfp4", "f16", "q8_0"},
                    .isas = {"scalar"},
                    .threads = {1, 2},
                    .tokens = {1, 17},
                    .from_cache = true,
                    .row_seconds = 0,
                    .quick = true};
  const auto enough = bench_ops(options);
  ASSERT_TRUE(enough.ok()) << enough.error().to_string();
  EXPECT_EQ((*enough)["rows"].size(), 24u);
  EXPECT_EQ((*enough)["budget"]["seconds"], 40);
  EXPECT_EQ((*enough)["budget"]["hit"], false);
  EXPECT_FALSE(enough->contains("left_out"));
  for (const Json& row : (*enough)["rows"]) EXPECT_GE(row["repetitions"], 5);
  options.quick_seconds = 1e-6;
  const auto hit = bench_ops(options);
  ASSERT_TRUE(hit.ok()) << hit.error().to_string();
  EXPECT_EQ((*hit)["budget"]["hit"], true);
  EXPECT_EQ((*hit)["rows"].size(), 1u);  // with one repetition
  EXPECT_EQ((*hit)["rows"][0]["repetitions"], 1);
  ASSERT_EQ((*hit)["left_out"].size(), 23u);
  EXPECT_EQ((*hit)["left_out"][0], "gemm nvfp4 m=17 n=48 k=64, scalar, 1 thread");
}

TEST(OpBench, AQuickRunNamesTheGemmsThatItShortened) {
  OpOptions options{
      .shapes = {{48, 64}}, .isas = {"scalar"}, .threads = {1}, .tokens = {512}, .row_seconds = 0, .quick = true};
  const auto enough = bench_ops(options);
  ASSERT_TRUE(enough.ok()) << enough.error().to_string();
  EXPECT_EQ((*enough)["rows"][0]["m"], 512);
  EXPECT_FALSE((*enough)["rows"][0].contains("m_asked"));
  options.quick_seconds = 1e-6;
  const auto hit = bench_ops(options);
  ASSERT_TRUE(hit.ok()) << hit.error().to_string();
  EXPECT_EQ((*hit)["rows"][0]["m"], 32);
  EXPECT_EQ((*hit)["rows"][0]["m_asked"], 512);
}

TEST(OpBench, OtherBackendsHaveNoLimitToShow) {
  const OpOptions options{
      .shapes = {{32, 64}}, .backend = "reference", .tokens = {1}, .from_cache = true, .row_seconds = 0};
  const auto json = bench_ops(options);
  ASSERT_TRUE(json.ok()) << json.error().to_string();
  EXPECT_TRUE((*json)["rows"][0]["share"].is_null());
  EXPECT_EQ((*json)["rows"][0]["backend"], "reference");
}

TEST(OpBench, RefusesWhatItCannotDo) {
  EXPECT_FALSE(bench_ops({.formats = {"q9"}}).ok());
  EXPECT_FALSE(bench_ops({.isas = {"altivec"}}).ok());
  EXPECT_FALSE(bench_ops({.shapes = {{16, 40}}}).ok());
  EXPECT_FALSE(bench_ops({.tokens = {0}}).ok());
  EXPECT_TRUE(parse_shape("14336x4096").ok());
  for (const char* text : {"", "14336", "x4096", "14336x", "14336x4096x1", "axb"})
    EXPECT_FALSE(parse_shape(text).ok()) << text;
}

TEST(ModelBench, OneInstructionSetAgainstAnother) {
  const std::string model = write_tiny_model({}, "bench.gguf");
  for (const Work work : {Work::kDecode, Work::kPrefill, Work::kLoad}) {
    const auto task = make_task(work, model, "", 5, 3);
    ASSERT_TRUE(task.ok());
    const auto a = make_nibble_contender({.model = model}, *task);
    const auto b = make_nibble_contender(*with_settings({.model = model}, "isa=scalar,threads=1,chunk=2"), *task);
    ASSERT_TRUE(a.ok() && b.ok());
    const auto json = bench_model(*task, **a, b->get(), {.repetitions = 5, .warmups = 1});
    ASSERT_TRUE(json.ok()) << json.error().to_string();
    EXPECT_EQ((*json)["same_logits"], true);
    EXPECT_EQ((*json)["cells"][0]["samples_s"].size(), 5u);
    EXPECT_EQ((*json)["cells"][0]["contract"], "nc1");
    EXPECT_TRUE((*json)["speed_of_a"].contains("low"));
  }
}

TEST(ModelBench, FewRepetitionsAndLongTasksAreRefused) {
  const std::string model = write_tiny_model({.context_length = 64}, "bench.gguf");
  EXPECT_FALSE(make_task(Work::kDecode, model, "", 60, 5).ok());
  const auto task = make_task(Work::kDecode, model, "", 4, 1);
  const auto a = make_nibble_contender({.model = model}, *task);
  EXPECT_FALSE(bench_model(*task, **a, nullptr, {.repetitions = 4}).ok());
}

class Fickle : public Contender {
 public:
  Result<Sample> run() override { return Sample{1.0, std::to_string(n_++)}; }
  Json facts() const override { return Json::object(); }

 private:
  int n_ = 0;
};

TEST(ModelBench, OtherLogitsTheSecondTimeAreAFailure) {
  Fickle fickle;
  EXPECT_FALSE(bench_model({}, fickle, nullptr, {}).ok());
}

const Task kTask = {Work::kDecode, {1, 2}, {3}};

TEST(Contenders, ACommandTellsItsSecondsOrIsTimed) {
  const auto tells = make_command_contender(R"(echo noise; echo '{"seconds": 0.25, "digest": "d"}')", kTask);
  const auto sample = tells->run();
  ASSERT_TRUE(sample.ok());
  EXPECT_EQ(sample->seconds, 0.25);
  EXPECT_EQ(sample->digest, "d");
  const auto silent = make_command_contender("true", kTask)->run();
  ASSERT_TRUE(silent.ok());
  EXPECT_GT(silent->seconds, 0);
  EXPECT_TRUE(make_command_contender(R"(echo '{"minutes": 3}')", kTask)->run().ok());
}

TEST(Contenders, ACommandThatTellsNoTimeIsNamed) {
  const auto fault_of = [](const std::string& command) {
    const auto sample = make_command_contender(command, kTask)->run();
    EXPECT_FALSE(sample.ok()) << command;
    const Error error = sample.ok() ? Error{} : sample.error();
    EXPECT_NE(error.message.find("'" + command + "'"), std::string::npos) << error.to_string();
    return error;
  };
  EXPECT_EQ(fault_of("exit 3").found, "/bin/sh: exit status 3");
  EXPECT_EQ(fault_of("kill -9 $$").found, "/bin/sh: was ended by a signal");
  for (const char* seconds : {"nan", "NaN", "inf", "Infinity", "1e999", "-1", "-0.0", "0", "null", "\"soon\""}) {
    const std::string line = std::string(R"({"seconds": )") + seconds + "}";
    EXPECT_EQ(fault_of("echo '" + line + "'").found, line);
  }
}

TEST(Contenders, ACommandThatDoesOtherWorkIsNotCompared) {
  const auto tells = [](Json line) {
    line["seconds"] = 0.25;
    return make_command_contender("echo '" + line.dump() + "'", kTask);
  };
  const auto same = tells(task_facts(kTask));
  EXPECT_TRUE(same->run().ok());
  EXPECT_EQ(same->facts()["work"], "that of A, as the command says");
  const Task others[] = {{Work::kPrefill, {1, 2}, {3}},
                         {Work::kDecode, {1}, {3}},
                         {Work::kDecode, {1, 2}, {3, 4}},
                         {Work::kDecode, {1, 2}, {4}}};
  const char* keys[] = {"work", "prefix_tokens", "timed_tokens", "tokens_sha256"};
  for (std::size_t i = 0; i < 4; ++i) {
    const Json facts = task_facts(others[i]);
    for (const Json& line : {facts, Json{{keys[i], facts[keys[i]]}}}) {  // all of it, and what differs alone
      const auto sample = tells(line)->run();
      ASSERT_FALSE(sample.ok()) << line;
      EXPECT_NE(sample.error().message.find("not compared"), std::string::npos);
    }
  }
  const auto silent = tells(Json::object());
  EXPECT_TRUE(silent->run().ok());
  EXPECT_EQ(silent->facts()["work"], "not told");
}

TEST(Contenders, AnAbsentLlamaIsSaidInWords) {
  const auto no_python = make_llama_contender({.model = "m.gguf", .python = "no/such/python3"}, kTask);
  ASSERT_FALSE(no_python.ok());
  EXPECT_NE(no_python.error().message.find("llama.cpp cannot be run"), std::string::npos);
  const std::string bare =
      write_program("bare.sh", "#!/bin/sh\nread task\necho '{\"error\": \"cannot import llama_cpp\"}'\n");
  const auto no_module = make_llama_contender({.model = "m.gguf", .python = bare}, kTask);
  ASSERT_FALSE(no_module.ok());
  EXPECT_EQ(no_module.error().found, "cannot import llama_cpp");
  const auto no_bench = make_llama_contender({.model = "m.gguf", .llama_bench = "no/such/llama-bench"}, kTask);
  ASSERT_TRUE(no_bench.ok());
  EXPECT_FALSE((*no_bench)->run().ok());
  EXPECT_FALSE(make_llama_contender({}, {Work::kLoad, {}, {1}}).ok());
}

TEST(Contenders, LlamaAnswersLineByLine) {
  const std::string driver = write_program("driver.sh",
                                           "#!/bin/sh\nread task\necho '{\"description\": \"fake\"}'\n"
                                           "while read line; do echo '{\"seconds\": 0.5, \"digest\": \"x\"}'; done\n");
  const auto llama = make_llama_contender({.model = "a/m.gguf", .python = driver}, kTask);
  ASSERT_TRUE(llama.ok()) << llama.error().to_string();
  for (int i = 0; i < 3; ++i) EXPECT_EQ((*llama)->run()->seconds, 0.5);
  EXPECT_EQ((*llama)->facts()["file"], "m.gguf");
}

TEST(Contenders, GgmlAnswersLineByLineOrSaysWhatIsMissing) {
  const std::string driver =
      write_program("ggml.sh",
                    "#!/bin/sh\nread task\necho \"$task\" >\"$0.task\"\n"
                    "echo '{\"description\": \"fake\"}'\n"
                    "read line; echo '{\"seconds\": 0.5}'; read line; echo '{\"error\": \"tired\"}'\n");
  auto peer = start_ggml(driver, {"q4_k", {64, 256}, 3, 2, 1000});
  ASSERT_TRUE(peer.ok()) << peer.error().to_string();
  EXPECT_EQ(peer->description(), "fake");
  EXPECT_EQ(peer->sample()->seconds, 0.5);
  EXPECT_EQ(peer->sample().error().message, "tired");
  std::ifstream task(driver + ".task");
  EXPECT_EQ(Json::parse(task),
            Json::parse(R"({"format": "q4_k", "n": 64, "k": 256, "m": 3, "threads": 2, "bytes": 1000})"));
  const auto short_row = start_ggml(driver, {"nvfp4", {64, 80}});
  ASSERT_FALSE(short_row.ok());
  EXPECT_EQ(short_row.error().expected, "a multiple of 64");
  const auto absent = start_ggml("no/such/python3", {"q4_k", {64, 256}});
  ASSERT_FALSE(absent.ok());
  EXPECT_NE(absent.error().message.find("ggml cannot be run"), std::string::npos);
}

TEST(Contenders, LlamaBenchIsReadFromItsJson) {
  const std::string bench = write_program("llama-bench",
                                          "#!/bin/sh\necho \"$@\" >\"$0.args\"\n"
                                          "echo '[{\"build_commit\": \"abc\", \"samples_ns\": [250000000]}]'\n");
  const auto llama = make_llama_contender({.model = "m.gguf", .n_threads = 2, .llama_bench = bench}, kTask);
  ASSERT_TRUE(llama.ok());
  const auto sample = (*llama)->run();
  ASSERT_TRUE(sample.ok()) << sample.error().to_string();
  EXPECT_EQ(sample->seconds, 0.25);
  std::ifstream arguments(bench + ".args");
  std::string line;
  std::getline(arguments, line);
  EXPECT_EQ(line, "-m m.gguf -t 2 -ngl 0 -r 1 -o json -p 0 -n 1 -d 2");
}

TEST(Settings, AreParsedOrRefusedByName) {
  const auto subject = with_settings({.model = "m"}, "isa=avx2,threads=3,pin=off,contract=float,chunk=7");
  ASSERT_TRUE(subject.ok());
  EXPECT_EQ(subject->isa, "avx2");
  EXPECT_EQ(subject->n_threads, 3);
  EXPECT_FALSE(subject->pins_threads);
  EXPECT_TRUE(subject->in_floats());
  EXPECT_EQ(subject->prefill_chunk, 7);
  for (const char* wrong : {"isa", "isa=avx2,", ",isa=avx2", "isa=avx2,,threads=1", "speed=9", "threads=two",
                            "threads=-1", "pin=on", "chunk=0", "lane=float", "threads=1,threads=2"}) {
    EXPECT_FALSE(with_settings({.model = "m"}, wrong).ok()) << wrong;
  }
}

TEST(Soak, EveryPromptHasOneDigestAndIsRunManyTimes) {
  const std::string model = write_tiny_model({}, "soak.gguf");
  const SoakOptions options{.seconds = 0, .threads = {1, 3}, .chunks = {1, 64}, .runs_per_load = 25};
  const auto json = soak({.model = model}, options);
  ASSERT_TRUE(json.ok()) << json.error().to_string();
  EXPECT_EQ((*json)["loads"], 5u);  // each thread count twice, and one more to tell growth
  std::uint64_t runs = 0;
  std::set<std::string> digests;
  for (const Json& prompt : (*json)["prompts"]) {
    runs += prompt["runs"].get<std::uint64_t>();
    digests.insert(prompt["digest"].get<std::string>());
  }
  EXPECT_EQ(runs, (*json)["runs"]);
  EXPECT_EQ(digests.size(), 16u);
  EXPECT_EQ((*json)["passed"], true);
  const auto again = soak({.model = model, .isa = "scalar"}, {.seconds = 0, .threads = {2}, .runs_per_load = 4});
  ASSERT_TRUE(again.ok());
  for (std::size_t i = 0; i < digests.size(); ++i) {  // and on another instruction set
    const Json& prompt = (*again)["prompts"][i];
    if (prompt["runs"] == 0) continue;
    EXPECT_EQ(prompt["digest"], (*json)["prompts"][i]["digest"]);
  }
}

TEST(Soak, MemoryThatGrowsIsAFailure) {
  const std::string model = write_tiny_model({}, "soak.gguf");
  std::vector<std::unique_ptr<char[]>> leak;
  const auto grow = [&leak](const SoakState& state) {
    EXPECT_GT(state.resident_bytes, 0u);
    leak.push_back(std::make_unique<char[]>(std::size_t{8} << 20));  // zeroed, so resident
  };
  const auto json =
      soak({.model = model}, {.seconds = 0, .threads = {1}, .runs_per_load = 1, .max_growth_bytes = 4 << 20}, grow);
  ASSERT_TRUE(json.ok());
  EXPECT_EQ((*json)["passed"], false);
}

}  // namespace
}  // namespace nibble::measure
