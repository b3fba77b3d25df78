#include "config/option_table.h"

#include <gtest/gtest.h>

#include "fake_environment.h"

namespace idetcd::config {
namespace {

using namespace std::chrono_literals;

enum class Mode : uint8_t { kOne, kTwo };

struct Inner {
  std::string name;
};
struct Settings {
  uint16_t count = 3;
  std::chrono::milliseconds wait{1500};
  std::optional<std::chrono::seconds> limit;
  std::chrono::seconds lease{60};
  Mode mode = Mode::kTwo;
  bool on = false;
  std::vector<dns::Name> zones;
  Inner inner;
};

const Options<Settings>& options() {
  static const Options<Settings> kOptions{
      zonesIfAny(&Settings::zones),
      {{"count", "count N", number(&Settings::count, 1, 9)},
       {"wait", "wait DURATION", duration(&Settings::wait, {.least = 1s, .most = 1h, .bare_seconds = true})},
       {"limit", "limit DURATION", duration(&Settings::limit)},
       {"lease", "lease DURATION", wholeSeconds(&Settings::lease, 1, 90)},
       {"mode", "mode one|two",
        choice(&Settings::mode, {{"one", Mode::kOne}, {"two", Mode::kTwo}}, "no mode '{word}'")},
       {"on", "on", flag(&Settings::on)},
       {"name", "name NAME", within(&Settings::inner, text(&Inner::name))}}};
  return kOptions;
}

// What the directive `test` came to, or what is wrong with it.
Result<Settings> read(const std::string& directive) {
  const FakeEnvironment environment;
  const auto corefile = parseCorefile("Corefile", ".:0 {\n" + directive + "\n}\n", {}, environment);
  if (!corefile) return tl::unexpected(corefile.error());
  DirectiveCursor cursor(corefile->blocks.at(0).directives.at(0));
  Settings settings;
  if (auto done = options().read(cursor, settings); !done) return tl::unexpected(done.error());
  return settings;
}

std::string errorOf(const std::string& line) {
  const auto settings = read("test {\n" + line + "\n}");
  return settings ? "" : settings.error().message;
}

TEST(OptionTable, FillsTheFieldsThatAreSaid) {
  const auto all = read("test a. b. {\ncount 9\nwait 90\nlimit 1ms\nlease 1m\nmode one\non\nname x\n}");
  ASSERT_TRUE(all) << all.error().message;
  EXPECT_EQ(all->zones.size(), 2u);
  EXPECT_EQ(all->count, 9);
  EXPECT_EQ(all->wait, 90s);
  EXPECT_EQ(all->limit, 1s) << "rounded up";
  EXPECT_EQ(all->lease, 60s);
  EXPECT_EQ(all->mode, Mode::kOne);
  EXPECT_TRUE(all->on);
  EXPECT_EQ(all->inner.name, "x");
  const auto none = read("test");
  ASSERT_TRUE(none);
  EXPECT_EQ(none->count, 3);
  EXPECT_EQ(none->limit, std::nullopt);
}

TEST(OptionTable, SaysWhatIsWrongAndWhatToWrite) {
  const std::string place = "Corefile:3 - Error during parsing: ";
  EXPECT_EQ(errorOf("count 10"), place + "'10' is no number from 1 to 9; write: count N");
  EXPECT_EQ(errorOf("wait 1ms"), place + "'1ms' is not from 1s to 1h; write: wait DURATION");
  EXPECT_EQ(errorOf("lease 1500ms"),
            place + "lease must be whole seconds from 1s to 90s: '1500ms'; write: lease DURATION");
  EXPECT_EQ(errorOf("mode {x"), place + "no mode '{x'; write: mode one|two");
  EXPECT_EQ(errorOf("on now"), place + "Wrong argument count or unexpected line ending after 'now'; write: on");
  EXPECT_EQ(errorOf("cuont 1"), place + "unknown property 'cuont', did you mean 'count'?");
}

TEST(OptionTable, ShowsTheDefaults) {
  std::string all;
  for (const OptionDefault& option : options().defaults()) all += std::string(option.name) + '=' + option.text + ' ';
  EXPECT_EQ(all, "count=3 wait=1500ms lease=60s mode=two ");
  EXPECT_EQ(durationText(0s), "0s");
  EXPECT_EQ(durationText(7200s), "2h");
}

}  // namespace
}  // namespace idetcd::config
