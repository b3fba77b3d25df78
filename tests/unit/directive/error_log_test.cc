#include "directive/errors/error_log.h"

#include <string>

#include <gtest/gtest.h>

#include "support/captured_stdout.h"
#include "support/query_fixture.h"

namespace idetcd::directive {
namespace {

using namespace std::chrono_literals;
using Level = ErrorLog::Level;

constexpr const char* kTimeout = "192.0.2.53:53: i/o timeout";
constexpr const char* kTimeoutLine = "plugin/errors: 2 example.org. A: 192.0.2.53:53: i/o timeout\n";

// The lines about failures with these reasons; the last period ends with the log.
std::string logged(const std::vector<ErrorLog::Consolidation>& consolidations,
                   const std::vector<const char*>& reasons) {
  return captured([&] {
    const auto log = ErrorLog::make(consolidations, Logger::toStdout().named("plugin/errors"));
    ASSERT_TRUE(log) << log.error().message;
    Message message("example.org.", 1);
    dns::Query query;
    dns::parseQuery(message.data(), message.size(), Message::kSeed, query);
    for (const char* reason : reasons) (*log)->onFailed(query, dns::Rcode::kServFail, reason);
  });
}

TEST(ErrorLog, OneLineEach) {
  EXPECT_EQ(logged({}, {kTimeout, kTimeout}), "[ERROR] " + std::string(kTimeoutLine) + "[ERROR] " + kTimeoutLine);
}

TEST(ErrorLog, TheExpressionMeetsTheReasonAlone) {
  EXPECT_EQ(logged({{30s, "^192.* i/o timeout$"}}, {kTimeout, kTimeout}),
            "[ERROR] plugin/errors: 2 errors like '^192.* i/o timeout$' occurred in last 30s\n");
  EXPECT_EQ(logged({{30s, "example"}}, {kTimeout}), "[ERROR] " + std::string(kTimeoutLine));
}

TEST(ErrorLog, LevelIsThatOfTheFirstThatMatches) {
  EXPECT_EQ(logged({{30s, "timeout", Level::kWarning}, {1s, ".*", Level::kInfo}}, {kTimeout, "refused"}),
            "[WARNING] plugin/errors: 1 errors like 'timeout' occurred in last 30s\n"
            "[INFO] plugin/errors: 1 errors like '.*' occurred in last 1s\n");
}

TEST(ErrorLog, ShowFirst) {
  const ErrorLog::Consolidation first{30s, "timeout", Level::kWarning, true};
  EXPECT_EQ(logged({first}, {kTimeout}), "[WARNING] " + std::string(kTimeoutLine)) << "no number of one";
  EXPECT_EQ(logged({first}, {kTimeout, kTimeout, kTimeout}),
            "[WARNING] " + std::string(kTimeoutLine) +
                "[WARNING] plugin/errors: 3 errors like 'timeout' occurred in last 30s\n");
}

TEST(ErrorLog, BadExpressionsAreRefused) {
  EXPECT_FALSE(ErrorLog::make({{1s, "("}}, {}));
  EXPECT_TRUE(ErrorLog::make({{1s, std::string(ErrorLog::kMaxPattern, 'a')}}, {}));
  EXPECT_FALSE(ErrorLog::make({{1s, std::string(ErrorLog::kMaxPattern + 1, 'a')}}, {}));
}

}  // namespace
}  // namespace idetcd::directive
