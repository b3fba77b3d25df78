#include "base/log.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "support/captured_stdout.h"

namespace idetcd {
namespace {

TEST(Log, PrintsLevelAndComponent) {
  EXPECT_EQ(captured([] {
              const Logger logger = Logger::toStdout();
              logger.info("{} nodes", 5);
              const Logger plugin = logger.named("plugin/idetcd");
              plugin.warning("careful");
              plugin.error("bad {}", "thing");
            }),
            "[INFO] 5 nodes\n[WARNING] plugin/idetcd: careful\n[ERROR] plugin/idetcd: bad thing\n");
}

TEST(Log, DebugLinesAreWrittenWhileSomebodyWantsThem) {
  EXPECT_EQ(captured([] {
              const Logger logger = Logger::toStdout();
              const Logger plugin = logger.named("plugin/x");
              plugin.debug("0");
              auto one = logger.showDebug();
              auto other = plugin.showDebug();
              plugin.debug("1");
              one.reset();
              EXPECT_TRUE(logger.showsDebug());
              logger.debug("2");
              other.reset();
              EXPECT_FALSE(logger.showsDebug());
              plugin.debug("3");
            }),
            "[DEBUG] plugin/x: 1\n[DEBUG] 2\n");
  EXPECT_EQ(Logger().showDebug(), nullptr);
  EXPECT_FALSE(Logger().showsDebug());
}

TEST(Log, PlainLinesAreAsTheyAre) {
  EXPECT_EQ(captured([] { Logger::toStdout().plain(".:53"); }), ".:53\n");
}

TEST(Log, AMessageIsOneLine) {
  const std::string text = captured([] { Logger::toStdout().info("key {}", "a\nb\r[ERROR] forged\x1b[2J\t"); });
  EXPECT_EQ(text.find('\n'), text.size() - 1);
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
}

TEST(Log, BracesInWhatIsLoggedAreText) {
  EXPECT_EQ(captured([] { Logger::toStdout().info("{}", "{0} %s {}"); }), "[INFO] {0} %s {}\n");
}

// `$JOURNAL_STREAM` as the service manager sets it for a stream that leads to the journal.
void claimJournal(int fd) {
  struct stat info {};
  ASSERT_EQ(fstat(fd, &info), 0);
  setenv("JOURNAL_STREAM", fmt::format("{}:{}", info.st_dev, info.st_ino).c_str(), 1);
}

TEST(Log, TheJournalIsToldThePriority) {
  EXPECT_EQ(captured([] {
              claimJournal(STDOUT_FILENO);
              const Logger logger = Logger::toStdout();
              const auto debug = logger.showDebug();
              logger.debug("d");
              logger.info("i");
              logger.warning("w\n<0>forged");
              logger.named("plugin/x").error("e");
              logger.plain(".:53");
            }),
            "<7>[DEBUG] d\n<6>[INFO] i\n<4>[WARNING] w <0>forged\n<3>[ERROR] plugin/x: e\n.:53\n");
  // Inherited, and the output leads elsewhere.
  setenv("JOURNAL_STREAM", "1:1", 1);
  EXPECT_EQ(captured([] { Logger::toStdout().warning("w"); }), "[WARNING] w\n");
  unsetenv("JOURNAL_STREAM");
}

TEST(Log, EachFatalLineHasItsPriority) {
  const int saved = dup(STDERR_FILENO);
  EXPECT_EQ(captured([] {
              dup2(STDOUT_FILENO, STDERR_FILENO);
              printError("one\ntwo\tthree");
              claimJournal(STDERR_FILENO);
              printError("one\ntwo\tthree");
            }),
            "one\ntwo three\n<3>one\n<3>two three\n");
  dup2(saved, STDERR_FILENO);
  close(saved);
  unsetenv("JOURNAL_STREAM");
}

TEST(Log, ADefaultLoggerIsSilent) {
  EXPECT_EQ(captured([] {
              const Logger logger;
              logger.info("without a reader");
              logger.named("x").error("this");
              logger.plain("either");
              logger.flush(std::chrono::seconds(30));
            }),
            "");
  EXPECT_EQ(Logger().droppedLines(), 0u);
}

TEST(Log, FlushWaitsForEverythingWrittenBefore) {
  const Logger logger = Logger::toStdout();
  const std::string text = captured([&] {
    for (int i = 0; i < 1000; ++i) logger.info("line {}", i);
    logger.flush(std::chrono::seconds(30));
  });
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1000);
  EXPECT_NE(text.find("line 999\n"), std::string::npos);
}

TEST(Log, ThreadsShareASinkLineByLine) {
  const std::string text = captured([] {
    const Logger logger = Logger::toStdout();
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([logger, t] {
        for (int i = 0; i < 500; ++i) logger.info("{}", std::string(20, static_cast<char>('a' + t)));
      });
    }
    for (std::thread& thread : threads) thread.join();
  });
  size_t lines = 0;
  for (size_t begin = 0; begin < text.size(); ++lines) {
    const size_t end = text.find('\n', begin);
    ASSERT_NE(end, std::string::npos);
    const std::string line = text.substr(begin, end - begin);
    EXPECT_EQ(line, "[INFO] " + std::string(20, line.back()));
    begin = end + 1;
  }
  EXPECT_EQ(lines, 2000u);
}

// A reader that does not read: the pipe fills up, lines are dropped and counted, and no writer ever waits.
TEST(Log, AFullPipeStallsNobody) {
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  fflush(stdout);
  const int saved = dup(STDOUT_FILENO);
  dup2(pipe_ends[1], STDOUT_FILENO);
  close(pipe_ends[1]);
  {
    const Logger logger = Logger::toStdout();
    for (int i = 0; i < 30'000; ++i) logger.info("{:0>80}", i);
    EXPECT_GT(logger.droppedLines(), 0u);
    EXPECT_FALSE(logger.flush(std::chrono::milliseconds(50))) << "there is no reader";
    // Let the writer thread end: what is queued goes out once it is read.
    std::thread reader([&] {
      char buffer[1 << 16];
      while (read(pipe_ends[0], buffer, sizeof(buffer)) > 0) {
      }
    });
    logger.flush(std::chrono::seconds(30));
    fflush(stdout);
    dup2(saved, STDOUT_FILENO);  // the last writing end: the reader sees the end of the file
    reader.join();
  }
  close(saved);
  close(pipe_ends[0]);
}

}  // namespace
}  // namespace idetcd
