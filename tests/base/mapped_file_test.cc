#include "base/mapped_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/base/temp_dir.h"

namespace nibble {
namespace {

using ::testing::HasSubstr;
using testing::TempDir;

void expect_refused(const std::string& path, const std::string& words) {
  const Result<MappedFile> file = MappedFile::open(path);
  ASSERT_FALSE(file.ok()) << path;
  EXPECT_THAT(file.error().to_string(), HasSubstr(words));
  EXPECT_EQ(file.error().file, path);
}

TEST(MappedFile, MapsAFileAndSurvivesAMove) {
  const TempDir dir;
  const std::string text = "forty-two";
  const std::string path = dir.write("f", std::as_bytes(std::span(text)));
  Result<MappedFile> opened = MappedFile::open(path);
  ASSERT_TRUE(opened.ok());
  const std::byte* data = opened->bytes().data();
  MappedFile file = std::move(*opened);
  EXPECT_EQ(file.path(), path);
  EXPECT_EQ(file.bytes().data(), data);
  release_pages(file.bytes());
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()), text);
}

TEST(MappedFile, KnowsWhetherItWasWrittenTo) {
  const TempDir dir;
  const std::string path = dir.write("f", std::as_bytes(std::span(std::string_view("forty-two"))));
  const Result<MappedFile> file = MappedFile::open(path);
  ASSERT_TRUE(file.ok());
  EXPECT_TRUE(file->check_unchanged().ok());
  dir.write("other", std::as_bytes(std::span(std::string_view("forty-six"))));
  ASSERT_EQ(::rename(dir.file("other").c_str(), path.c_str()), 0);
  EXPECT_TRUE(file->check_unchanged().ok());  // the name is another file's now; this one is as it was

  const Result<MappedFile> renamed = MappedFile::open(path);
  ASSERT_TRUE(renamed.ok());
  const timespec times[] = {{0, UTIME_OMIT}, {1, 0}};  // as a write would, but on any clock
  ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
  const Status changed = renamed->check_unchanged();
  ASSERT_FALSE(changed.ok());
  EXPECT_THAT(changed.error().to_string(), HasSubstr("written to while it was in use"));

  // A time that was put back is no proof; permissions are no content.
  const Result<MappedFile> again = MappedFile::open(path);
  ASSERT_TRUE(again.ok());
  ASSERT_EQ(::chmod(path.c_str(), 0600), 0);
  EXPECT_TRUE(again->check_unchanged().ok());
  const Result<MappedFile> put_back = MappedFile::open(path);
  ASSERT_TRUE(put_back.ok());
  dir.write("f", std::as_bytes(std::span(std::string_view("forty-six"))));
  ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
  EXPECT_FALSE(put_back->check_unchanged().ok());
}

TEST(MappedFile, RefusesWhatIsNoFile) {
  const TempDir dir;
  expect_refused(dir.path(), "is a directory");
  expect_refused(dir.file("absent"), "No such file");
  expect_refused(dir.write("empty", {}), "is empty");
  expect_refused("/dev/null", "is a device");
  const std::string pipe = dir.file("pipe");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  expect_refused(pipe, "is a pipe");  // and does not wait for a writer
}

TEST(MappedFile, RefusesAnUnreadableFile) {
  const TempDir dir;
  const std::string text = "secret";
  const std::string path = dir.write("f", std::as_bytes(std::span(text)));
  ASSERT_EQ(::chmod(path.c_str(), 0), 0);
  ASSERT_EQ(::chmod(dir.path().c_str(), 0755), 0);
  const uid_t user = ::geteuid();
  const auto become = [user](uid_t other) { return user != 0 || ::seteuid(other) == 0; };  // root may read anything
  ASSERT_TRUE(become(65534));
  const Result<MappedFile> file = MappedFile::open(path);
  ASSERT_TRUE(become(0));
  ASSERT_FALSE(file.ok());
  EXPECT_THAT(file.error().to_string(), HasSubstr("Permission denied"));
  EXPECT_THAT(file.error().hint, HasSubstr("read permission"));
}

}  // namespace
}  // namespace nibble
