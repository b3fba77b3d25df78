#include "app/command_line.h"

#include <string>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

namespace idetcd::app {
namespace {

std::variant<Options, Exit> parse(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "./idetcd");
  return parseCommandLine(arguments);
}

Options accepted(const std::vector<const char*>& arguments) {
  const auto parsed = parse(arguments);
  if (const Exit* exit = std::get_if<Exit>(&parsed)) ADD_FAILURE() << exit->err;
  return std::holds_alternative<Options>(parsed) ? std::get<Options>(parsed) : Options{};
}

Exit refused(const std::vector<const char*>& arguments) {
  const auto parsed = parse(arguments);
  EXPECT_TRUE(std::holds_alternative<Exit>(parsed));
  return std::holds_alternative<Exit>(parsed) ? std::get<Exit>(parsed) : Exit{-1, "", ""};
}

constexpr std::string_view kUsage = R"(Usage of ./idetcd:
  -conf string
    	Corefile to load, or stdin (default "Corefile")
  -dns.port string
    	Default port (default "53")
  -help
    	Show this text
  -handover string
    	Path of a Unix socket: take over from the server there, and be there for the next
  -p string
    	Default port (default "53")
  -pidfile string
    	Path to write pid file
  -plugins
    	List installed plugins
  -quiet
    	Quiet mode (no initialization output)
  -sandbox string
    	What the server may do: on, log or off (default "on")
  -validate
    	Check the Corefile, start nothing
  -version
    	Show version
Subcommands, which ask a server that runs (idetcd help says more):
  status members whoami wait tf-config hostfile torchrun-env exec drain undrain release cache peers top xdp doctor completion
)";

TEST(CommandLine, Defaults) {
  const Options options = accepted({});
  EXPECT_EQ(options.action, Options::Action::kServe);
  EXPECT_EQ(options.conf, "");
  EXPECT_EQ(options.port, 53);
  EXPECT_EQ(options.pid_file, "");
  EXPECT_EQ(options.handover, "");
  EXPECT_FALSE(options.quiet);
  EXPECT_TRUE(std::holds_alternative<Options>(parseCommandLine({})));  // not even a program's name
}

TEST(CommandLine, ValuesInEverySpelling) {
  for (const auto& conf : std::vector<std::vector<const char*>>{
           {"-conf", "x/y"}, {"--conf", "x/y"}, {"-conf=x/y"}, {"--conf=x/y"}, {"-conf=z", "-conf", "x/y"}}) {
    EXPECT_EQ(accepted(conf).conf, "x/y");
  }
  EXPECT_EQ(accepted({"-conf", "stdin"}).conf, "stdin");
  EXPECT_EQ(accepted({"-conf="}).conf, "");
  EXPECT_EQ(accepted({"-conf", "-quiet"}).conf, "-quiet");  // a value is whatever comes next
  EXPECT_EQ(accepted({"-conf", "--"}).conf, "--");
  EXPECT_EQ(accepted({"-conf=a=b"}).conf, "a=b");
  EXPECT_EQ(accepted({"-pidfile", "/run/x.pid"}).pid_file, "/run/x.pid");
  EXPECT_EQ(accepted({"-handover", "/run/x.sock"}).handover, "/run/x.sock");
}

TEST(CommandLine, Ports) {
  for (const auto& port : std::vector<std::vector<const char*>>{{"-p", "1053"},
                                                                {"-dns.port", "1053"},
                                                                {"--dns.port=1053"},
                                                                {"-p=1053"},
                                                                {"-p", "1", "-dns.port", "1053"},
                                                                {"-p=01053"}}) {
    EXPECT_EQ(accepted(port).port, 1053);
  }
  EXPECT_EQ(accepted({"-p", "0"}).port, 0);
  EXPECT_EQ(accepted({"-p", "65535"}).port, 65535);
}

TEST(CommandLine, Booleans) {
  EXPECT_TRUE(accepted({"-quiet"}).quiet);
  EXPECT_TRUE(accepted({"--quiet"}).quiet);
  EXPECT_FALSE(accepted({"-quiet", "-quiet=false"}).quiet);
  for (const char* yes : {"-quiet=1", "-quiet=t", "-quiet=T", "-quiet=TRUE", "-quiet=true", "-quiet=True"}) {
    EXPECT_TRUE(accepted({yes}).quiet) << yes;
  }
  for (const char* no : {"-quiet=0", "-quiet=f", "-quiet=F", "-quiet=FALSE", "-quiet=false", "-quiet=False"}) {
    EXPECT_FALSE(accepted({no}).quiet) << no;
  }
}

TEST(CommandLine, Actions) {
  EXPECT_EQ(accepted({"-validate"}).action, Options::Action::kValidate);
  EXPECT_EQ(accepted({"-plugins"}).action, Options::Action::kListDirectives);
  EXPECT_EQ(accepted({"-version"}).action, Options::Action::kShowVersion);
  EXPECT_EQ(accepted({"-version=false"}).action, Options::Action::kServe);
  EXPECT_EQ(accepted({"-validate", "-plugins"}).action, Options::Action::kListDirectives);
  EXPECT_EQ(accepted({"-version", "-validate", "-plugins"}).action, Options::Action::kShowVersion);
  EXPECT_EQ(accepted({"-validate", "-conf", "x"}).conf, "x");
}

TEST(CommandLine, Help) {
  for (const char* flag : {"-help", "--help", "-h", "--h", "-help=true"}) {
    const Exit exit = refused({flag});
    EXPECT_EQ(exit.code, 0);
    EXPECT_EQ(exit.out, kUsage);
    EXPECT_EQ(exit.err, "");
  }
  EXPECT_EQ(refused({"-quiet", "-help", "stray", "-nonsense"}).code, 0);  // what comes later is not looked at
  EXPECT_EQ(refused({"-nonsense", "-help"}).code, 2);
}

TEST(CommandLine, StrayArgumentsExitWith1) {
  const struct {
    std::vector<const char*> arguments;
    std::string_view err;
  } cases[] = {
      {{"stray"}, "extra command line arguments: [stray]\n"},
      {{"stray", "-quiet", "-nonsense"}, "extra command line arguments: [stray -quiet -nonsense]\n"},
      {{"-quiet", "true"}, "extra command line arguments: [true]\n"},
      {{"-version", "x"}, "extra command line arguments: [x]\n"},
      {{"--", "-quiet"}, "extra command line arguments: [-quiet]\n"},
      {{"-"}, "extra command line arguments: [-]\n"},
      {{""}, "extra command line arguments: []\n"},
  };
  for (const auto& each : cases) {
    const Exit exit = refused(each.arguments);
    EXPECT_EQ(exit.code, 1);
    EXPECT_EQ(exit.err, each.err);
    EXPECT_EQ(exit.out, "");
  }
  EXPECT_EQ(accepted({"-quiet", "--"}).quiet, true);
}

TEST(CommandLine, BadFlagsExitWith2) {
  const struct {
    std::vector<const char*> arguments;
    std::string_view message;
  } cases[] = {
      {{"-x"}, "flag provided but not defined: -x"},
      {{"--x=1"}, "flag provided but not defined: -x"},
      {{"-Quiet"}, "flag provided but not defined: -Quiet"},
      {{"-conf=a", "-x"}, "flag provided but not defined: -x"},
      {{"-conf"}, "flag needs an argument: -conf"},
      {{"-quiet", "--p"}, "flag needs an argument: -p"},
      {{"---x"}, "bad flag syntax: ---x"},
      {{"-=x"}, "bad flag syntax: -=x"},
      {{"--=x"}, "bad flag syntax: --=x"},
      {{"-quiet=maybe"}, "invalid boolean value \"maybe\" for -quiet: parse error"},
      {{"-quiet="}, "invalid boolean value \"\" for -quiet: parse error"},
      {{"-version=yes"}, "invalid boolean value \"yes\" for -version: parse error"},
      {{"-p", "x"}, "invalid value \"x\" for flag -p: parse error"},
      {{"-p="}, "invalid value \"\" for flag -p: parse error"},
      {{"-p", "53x"}, "invalid value \"53x\" for flag -p: parse error"},
      {{"-p", " 53"}, "invalid value \" 53\" for flag -p: parse error"},
      {{"-dns.port", "-1"}, "invalid value \"-1\" for flag -dns.port: parse error"},
      {{"-dns.port=+1"}, "invalid value \"+1\" for flag -dns.port: parse error"},
      {{"-dns.port=65536"}, "invalid value \"65536\" for flag -dns.port: value out of range"},
      {{"-dns.port=99999999999999999999"},
       "invalid value \"99999999999999999999\" for flag -dns.port: value out of range"},
  };
  for (const auto& each : cases) {
    const Exit exit = refused(each.arguments);
    EXPECT_EQ(exit.code, 2);
    EXPECT_EQ(exit.err, std::string(each.message) + "\n" + std::string(kUsage));
    EXPECT_EQ(exit.out, "");
  }
}

TEST(CommandLine, TheVersionSaysWhatIsLeftOut) {
  EXPECT_EQ(versionText("1.2.3", true), "idetcd-1.2.3\n");
  EXPECT_EQ(versionText("1.2.3", false), "idetcd-1.2.3\nbuilt without xdp: clang, bpftool or libbpf was missing\n");
}

}  // namespace
}  // namespace idetcd::app
