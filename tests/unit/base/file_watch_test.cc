#include "base/file_watch.h"

#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <fstream>
#include <future>
#include <mutex>
#include <sys/stat.h>
#include <unistd.h>

#include <gtest/gtest.h>

namespace idetcd {
namespace {

using namespace std::chrono_literals;

class FileWatchTest : public testing::Test {
 protected:
  // What is read, in a queue that a test waits for.
  struct Readings {
    void add(Result<std::optional<std::string>> read) {
      const std::lock_guard lock(mutex);
      if (read && !*read) return;  // the same again
      queue.push_back(read ? **read : "error");
      changed.notify_all();
    }
    std::string next() {
      std::unique_lock lock(mutex);
      changed.wait(lock, [this] { return !queue.empty(); });
      std::string first = queue.front();
      queue.pop_front();
      return first;
    }
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<std::string> queue;
  };

  FileWatchTest() {
    std::string path = std::filesystem::temp_directory_path() / "idetcd-watch-XXXXXX";
    if (mkdtemp(path.data()) != nullptr) directory_ = path;
    path_ = directory_ + "/file";
  }
  ~FileWatchTest() override {
    executor_.finish(10s);
    std::filesystem::remove_all(directory_);
  }
  void write(const std::string& text) { std::ofstream(path_) << text; }
  std::unique_ptr<FileWatch> watch() {
    WatchedFile file(path_);
    EXPECT_TRUE(file.readIfChanged());
    return std::make_unique<FileWatch>(executor_, std::move(file),
                                       FileWatch::Options{.interval = 5ms, .settle_time = 1ms},
                                       [readings = readings_](auto read) { readings->add(std::move(read)); });
  }

  std::string directory_;
  std::string path_;
  std::shared_ptr<Readings> readings_ = std::make_shared<Readings>();
  Executor executor_;
};

TEST_F(FileWatchTest, TellsEachChange) {
  write("one");
  const auto watch = this->watch();
  write("two!");
  while (readings_->next() != "two!") {  // it may be seen empty
  }
  std::filesystem::remove(path_);
  EXPECT_EQ(readings_->next(), "error");
  write("three");
  std::string read = readings_->next();
  while (read != "three") read = readings_->next();
}

TEST_F(FileWatchTest, IsLeftWithoutWaitingForARead) {
  write("one");
  std::promise<void> begun;
  std::promise<void> end;
  const std::shared_future<void> go_on = end.get_future().share();
  WatchedFile file(path_);
  auto kept = std::make_shared<int>(0);
  const std::weak_ptr<int> seen = kept;
  auto watch = std::make_unique<FileWatch>(executor_, std::move(file), FileWatch::Options{.interval = 1ms},
                                           [&begun, go_on, kept = std::move(kept)](const auto&) {
                                             begun.set_value();
                                             go_on.wait();
                                           });
  begun.get_future().wait();
  watch.reset();
  EXPECT_FALSE(seen.expired()) << "the call that is under way uses it";
  end.set_value();
  ASSERT_TRUE(executor_.finish(10s));
  EXPECT_TRUE(seen.expired());
}

TEST_F(FileWatchTest, IsNotKeptByItsTimer) {
  write("one");
  auto kept = std::make_shared<int>(0);
  const std::weak_ptr<int> seen = kept;
  auto watch = std::make_unique<FileWatch>(executor_, WatchedFile(path_), FileWatch::Options{.interval = 1h},
                                           [kept = std::move(kept)](const auto&) {});
  watch.reset();
  EXPECT_TRUE(seen.expired());
}

}  // namespace
}  // namespace idetcd
