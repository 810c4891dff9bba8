#include "base/atomic_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "tests/base/file_size_limit.h"
#include "tests/base/temp_dir.h"

namespace nibble {
namespace {

using ::testing::ElementsAre;
using testing::FileSizeLimit;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::read_file;
using testing::TempDir;
using ::testing::UnorderedElementsAre;

std::span<const std::byte> bytes(std::string_view text) {
  return std::as_bytes(std::span(text));
}

std::string content(const std::string& path) {
  const std::vector<char> read = read_file(path);
  return {read.begin(), read.end()};
}

TEST(AtomicFile, AppearsWhenItIsCommitted) {
  const TempDir dir;
  Result<AtomicFile> file = AtomicFile::create(dir.file("f"));
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE(file->write(bytes("one ")).ok());
  ASSERT_TRUE(file->write(bytes("two")).ok());
  EXPECT_EQ(file->size(), 7U);
  EXPECT_FALSE(std::filesystem::exists(dir.file("f")));
  ASSERT_TRUE(file->commit().ok());
  EXPECT_THAT(dir.names(), ElementsAre("f"));
  EXPECT_EQ(content(dir.file("f")), "one two");
}

TEST(AtomicFile, TakesOverThePermissionsOfWhatItReplaces) {
  const TempDir dir;
  dir.write("f", bytes("old"));
  const auto own = std::filesystem::perms::owner_read | std::filesystem::perms::owner_write;
  std::filesystem::permissions(dir.file("f"), own);
  Result<AtomicFile> file = AtomicFile::create(dir.file("f"));
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE(file->commit().ok());
  EXPECT_EQ(std::filesystem::status(dir.file("f")).permissions(), own);
}

TEST(AtomicFile, WithoutCommitNothingRemainsAndAnOldFileStays) {
  const TempDir dir;
  dir.write("f", bytes("old"));
  {
    Result<AtomicFile> file = AtomicFile::create(dir.file("f"));
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE(file->write(bytes("new and longer")).ok());
    AtomicFile moved = std::move(*file);
    EXPECT_EQ(content(dir.file("f")), "old");
  }
  EXPECT_THAT(dir.names(), ElementsAre("f"));
  EXPECT_EQ(content(dir.file("f")), "old");
}

TEST(AtomicFile, TwoWritersOfOneNameDoNotMeet) {
  const TempDir dir;
  Result<AtomicFile> first = AtomicFile::create(dir.file("f"));
  Result<AtomicFile> second = AtomicFile::create(dir.file("f"));
  ASSERT_TRUE(first.ok() && second.ok());
  ASSERT_TRUE(first->write(bytes("1")).ok() && second->write(bytes("2")).ok());
  ASSERT_TRUE(first->commit().ok() && second->commit().ok());
  EXPECT_EQ(content(dir.file("f")), "2");
  EXPECT_THAT(dir.names(), ElementsAre("f"));
}

TEST(AtomicFile, AKilledProcessLeavesNothing) {
  const TempDir dir;
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    Result<AtomicFile> file = AtomicFile::create(dir.file("f"));
    const bool written = file.ok() && file->write(bytes("half")).ok();
    ::kill(::getpid(), written ? SIGKILL : SIGTERM);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  const std::vector<std::string> names = dir.names();
  if (names.empty()) return;
  // A file system without files that have no name.
  EXPECT_THAT(names, ElementsAre(HasSubstr("f.partial-")));
  EXPECT_LT(::open(dir.path().c_str(), O_TMPFILE | O_WRONLY, 0600), 0);
}

TEST(AtomicFile, AFullDiskIsReportedAndLeavesNothing) {
  const TempDir dir;
  Result<AtomicFile> file = AtomicFile::create(dir.file("f"));
  ASSERT_TRUE(file.ok());
  const FileSizeLimit limit(10);
  ASSERT_TRUE(file->write(bytes("12345678")).ok());
  const Status status = file->write(bytes("9abcdef"));
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(status.error().message, HasSubstr("the disk is full"));
  EXPECT_THAT(status.error().found, HasSubstr("10 bytes written"));
  EXPECT_THAT(dir.names(), IsEmpty());
}

TEST(AtomicFile, FollowsASymbolicLink) {
  const TempDir dir;
  dir.write("real", bytes("old"));
  std::filesystem::create_symlink("real", dir.file("link"));
  Result<AtomicFile> file = AtomicFile::create(dir.file("link"));
  ASSERT_TRUE(file.ok() && file->write(bytes("new")).ok() && file->commit().ok());
  EXPECT_TRUE(std::filesystem::is_symlink(dir.file("link")));
  EXPECT_EQ(content(dir.file("real")), "new");
  EXPECT_THAT(dir.names(), UnorderedElementsAre("link", "real"));
}

TEST(AtomicFile, TakesEveryNameThatTheFileSystemTakesAndNoOther) {
  const TempDir dir;
  const std::string longest(255, 'n');
  Result<AtomicFile> file = AtomicFile::create(dir.file(longest));
  ASSERT_TRUE(file.ok() && file->write(bytes("new")).ok());
  const Status whole = file->commit();
  EXPECT_TRUE(whole.ok()) << whole.error().to_string();
  EXPECT_THAT(dir.names(), ElementsAre(longest));
  const Status refused = AtomicFile::check(dir.file(longest + "n"));  // before the work, not after it
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("too long"));
}

TEST(AtomicFile, RefusesWhatARenameWouldDestroy) {
  const TempDir dir;
  for (const std::string& path : {dir.path(), std::string("/dev/full"), std::string("/dev/null")}) {
    const Result<AtomicFile> file = AtomicFile::create(path);
    ASSERT_FALSE(file.ok()) << path;
    EXPECT_THAT(file.error().to_string(), HasSubstr("not a regular file"));
  }
  const Result<AtomicFile> file = AtomicFile::create(dir.file("absent/f"));
  ASSERT_FALSE(file.ok());
  EXPECT_THAT(file.error().hint, HasSubstr("must exist"));
}

}  // namespace
}  // namespace nibble
