// What README.md, src/docs and the README.md of each directive show and promise, held against what makePlan() takes.
#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <unistd.h>
#include <vector>

#include <gtest/gtest.h>

#include "app/plan.h"
#include "config/corefile.h"
#include "directive/order.h"

namespace idetcd::app {
namespace {

namespace fs = std::filesystem;

const fs::path kSource = IDETCD_SOURCE_DIR;
const fs::path kDirectives = kSource / "src" / "directive";

std::string contentOf(const fs::path& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file) << path << " cannot be read";
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string readmeOf(std::string_view directive) { return contentOf(kDirectives / directive / "README.md"); }

// Every README.md of a directive, the project's, and the pages for operators.
std::vector<fs::path> readmes() {
  std::vector<fs::path> paths{kSource / "README.md"};
  for (const auto& entry : fs::directory_iterator(kSource / "src" / "docs")) {
    if (entry.path().extension() == ".md") paths.push_back(entry.path());
  }
  for (const auto& entry : fs::recursive_directory_iterator(kDirectives)) {
    if (entry.path().filename() == "README.md") paths.push_back(entry.path());
  }
  return paths;
}

std::string replaced(std::string text, std::string_view from, const std::string& to) {
  for (size_t at = text.find(from); at != text.npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
  return text;
}

// The blocks that are fenced as ```corefile.
std::vector<std::string> corefilesIn(const std::string& readme) {
  std::vector<std::string> corefiles;
  std::istringstream lines(readme);
  bool inside = false;
  for (std::string line; std::getline(lines, line);) {
    if (line == "```corefile") {
      inside = true;
      corefiles.emplace_back();
    } else if (line.starts_with("```")) {
      inside = false;
    } else if (inside) {
      corefiles.back() += line + '\n';
    }
  }
  return corefiles;
}

// A file of servers, which a machine may lack, stands in for those that examples name.
Result<Plan> planOf(std::string_view name, const std::string& corefile) {
  const fs::path servers = fs::path(testing::TempDir()) / ("readme_test." + std::to_string(getpid()));
  std::ofstream(servers) << "nameserver 192.0.2.53\n";
  std::string text = corefile;
  for (const char* file : {"/etc/resolv.conf", "/run/NetworkManager/no-stub-resolv.conf"})
    text = replaced(text, file, servers.string());
  auto plan = makePlan(name, text, 53);
  fs::remove(servers);
  return plan;
}

bool uses(const Plan& plan, const resolve::DirectiveType* type) {
  return std::any_of(plan.blocks.begin(), plan.blocks.end(), [type](const resolve::Block& block) {
    return std::any_of(block.directives.begin(), block.directives.end(),
                       [type](const auto& directive) { return directive.first == type; });
  });
}

// The first words between the backquotes in the first cells of the tables of arguments and options.
std::set<std::string> documentedWords(const std::string& readme) {
  std::set<std::string> words;
  std::istringstream lines(readme);
  bool inside = false;
  for (std::string line; std::getline(lines, line);) {
    for (const char* head : {"| option |", "| argument |", "| argument or option |"}) inside |= line.starts_with(head);
    if (!line.starts_with("|")) inside = false;
    if (inside && line.starts_with("| `")) words.insert(line.substr(3, line.find_first_of("` ", 3) - 3));
  }
  return words;
}

// Those that are options: in lower case.
std::set<std::string> documentedOptions(const std::string& readme) {
  std::set<std::string> options = documentedWords(readme);
  std::erase_if(options,
                [](const std::string& word) { return std::islower(static_cast<unsigned char>(word[0])) == 0; });
  return options;
}

// The second cell of the row that begins with `option`, without backquotes, and up to a semicolon; "": there is none.
std::string defaultIn(const std::string& readme, std::string_view option) {
  std::istringstream lines(readme);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("| `" + std::string(option))) continue;
    if (const char next = line[3 + option.size()]; next != '`' && next != ' ') continue;
    const size_t begin = line.find(" | ") + 3;
    const std::string cell = line.substr(begin, line.find(" | ", begin) - begin);
    return replaced(cell.substr(0, cell.find(';')), "`", "");
  }
  return "";
}

// What must follow the directive's name.
std::string requiredArguments(std::string_view directive) {
  if (directive == "forward") return ". 192.0.2.53";
  if (directive == "bind") return "127.0.0.1";
  if (directive == "workers") return "1";
  if (directive == "file") return "db";
  if (directive == "tls") return "cert.pem key.pem";
  if (directive == "xdp") return "lo";
  if (directive == "template") return "IN A";
  return "";
}

// What a block of the directive that holds this one line is answered with; empty: it is taken.
std::string errorsOf(std::string_view directive, const std::string& line) {
  std::string text =
      ".:0 {\n" + std::string(directive) + ' ' + requiredArguments(directive) + " {\n" + line + "\n}\n}\n";
  const auto plan = makePlan("Corefile", text, 53);
  return plan ? "" : plan.error().message;
}

// The options of a directive: an option that there is not is answered with the list of those that there are,
// "one of A, B" or "expect 'A' or 'B'". Without a block there is none.
std::set<std::string> acceptedOptions(std::string_view directive) {
  const std::string errors = errorsOf(directive, "qqqqqqqqqqqq");
  const std::string line = errors.substr(0, errors.find('\n'));
  if (line.find("Unexpected token '{'") != line.npos) return {};
  std::set<std::string> options;
  constexpr std::string_view kList = "write: one of ";
  if (const size_t list = line.find(kList); list != line.npos) {
    std::istringstream names(replaced(line.substr(list + kList.size()), ",", " "));
    for (std::string name; names >> name;) options.insert(name);
    options.erase("ADDRESS");  // of `hosts`: a line that is no option
    options.erase("NAME...");
  } else {
    const size_t end = line.find(';', line.find("expect "));
    for (size_t open = line.find('\'', line.find("expect ")); open < end;) {
      const size_t close = line.find('\'', open + 1);
      options.insert(line.substr(open + 1, close - open - 1));
      open = line.find('\'', close + 1);
    }
  }
  EXPECT_FALSE(options.empty()) << directive << " does not say which options it has: " << errors;
  return options;
}

TEST(Readme, EveryCorefileIsAccepted) {
  size_t count = 0;
  for (const fs::path& path : readmes()) {
    for (const std::string& corefile : corefilesIn(contentOf(path))) {
      const auto plan = planOf(path.string(), corefile);
      EXPECT_TRUE(plan) << corefile << (plan ? "" : plan.error().message);
      ++count;
    }
  }
  EXPECT_GE(count, directive::directives().size());
}

TEST(Readme, EachDirectiveHasOneWithAnExample) {
  for (const resolve::DirectiveType* type : directive::directives()) {
    bool found = false;
    for (const std::string& corefile : corefilesIn(readmeOf(type->name))) {
      const auto plan = planOf("README.md", corefile);
      found |= plan && uses(*plan, type);
    }
    EXPECT_TRUE(found) << "no example in the README.md of " << type->name << " uses it";
  }
}

TEST(Readme, OptionsAreThoseThatTheDirectiveHas) {
  for (const resolve::DirectiveType* type : directive::directives()) {
    EXPECT_EQ(documentedOptions(readmeOf(type->name)), acceptedOptions(type->name)) << type->name;
  }
}

// What the table says of an option that is not there stands in the second column; of a choice of words, each of which has a
// row, the one that counts is on.
TEST(Readme, StatesTheDefaultOfEachOption) {
  size_t count = 0;
  for (const resolve::DirectiveType* type : directive::directives()) {
    if (type->defaults == nullptr) continue;
    const std::string readme = readmeOf(type->name);
    for (const config::OptionDefault& option : type->defaults()) {
      const std::string chosen = std::string(option.name) + ' ' + option.text;
      EXPECT_TRUE(defaultIn(readme, option.name) == option.text || defaultIn(readme, chosen) == "on")
          << type->name << ": " << chosen << ", not " << defaultIn(readme, option.name);
      ++count;
    }
  }
  EXPECT_GE(count, 20u);
}

// A number, above all, changes without a look at the documents.
TEST(Readme, EachNumberAmongTheDefaultsIsTheTables) {
  for (const resolve::DirectiveType* type : directive::directives()) {
    const auto known = type->defaults != nullptr ? type->defaults() : std::vector<config::OptionDefault>();
    const std::string readme = readmeOf(type->name);
    for (const std::string& name : documentedWords(readme)) {
      if (std::isdigit(static_cast<unsigned char>(defaultIn(readme, name)[0])) == 0) continue;
      EXPECT_NE(std::ranges::find(known, name, &config::OptionDefault::name), known.end()) << type->name << ' ' << name;
    }
  }
}

// A `|` inside a cell ends it, and shifts the others.
TEST(Readme, TablesAreComplete) {
  for (const fs::path& path : readmes()) {
    std::istringstream lines(contentOf(path));
    std::ptrdiff_t columns = 0;
    for (std::string line; std::getline(lines, line);) {
      const auto cells = std::count(line.begin(), line.end(), '|') - 1;
      if (!line.starts_with("|")) {
        columns = 0;
      } else if (columns == 0) {
        columns = cells;
      } else {
        EXPECT_EQ(cells, columns) << path << ": " << line;
      }
      EXPECT_TRUE(columns == 0 || line.find("|  |") == line.npos) << path << ": " << line;
    }
  }
}

TEST(Readme, HasTheSectionsThatEachDirectiveNeeds) {
  for (const resolve::DirectiveType* type : directive::directives()) {
    const std::string readme = readmeOf(type->name);
    EXPECT_TRUE(readme.starts_with("# " + std::string(type->name) + "\n\n*" + std::string(type->name) + "* "))
        << type->name;
    for (const char* section : {"\n## Syntax\n", "\n## Answers\n", "\n## Example", "\n## Differs from CoreDNS\n"}) {
      EXPECT_NE(readme.find(section), readme.npos) << type->name << section;
    }
  }
}

TEST(Readme, TheProjectsNamesEveryDirective) {
  const std::string readme = contentOf(kSource / "README.md");
  size_t previous = 0;
  for (const resolve::DirectiveType* type : directive::directives()) {
    const std::string name(type->name);
    const size_t row = readme.find("\n| [`" + name + "`](src/directive/" + name + "/README.md) | ");
    EXPECT_NE(row, readme.npos) << name;
    if (row == readme.npos) continue;
    EXPECT_LT(previous, row) << name << " is not at its place in directive/order.cc";
    previous = row;
  }
}

// The functions above, on what is wrong.
TEST(Readme, WhatIsWrongIsFound) {
  const auto corefiles = corefilesIn("```\n. {\n```\n```corefile\n. {\n  whoam\n}\n```\ntext\n```corefile\n.\n```\n");
  EXPECT_EQ(corefiles, (std::vector<std::string>{". {\n  whoam\n}\n", ".\n"}));
  EXPECT_FALSE(planOf("README.md", corefiles.front()));
  EXPECT_EQ(documentedOptions(
                "| `a` |\n\n| argument or option | default |\n|---|---|\n| `TTL` | 1 |\n| `a` | 1 |\n\n| `b` |\n"),
            (std::set<std::string>{"a"}));
  EXPECT_EQ(defaultIn("| `ab` | 1 | x |\n| `a N` | `2`; or 3 | x |\n", "a"), "2");
  EXPECT_EQ(defaultIn("| `ab` | 1 | x |\n", "a"), "");
  EXPECT_EQ(acceptedOptions("any"), std::set<std::string>{});
  EXPECT_EQ(acceptedOptions("bind"), std::set<std::string>{"except"});
  EXPECT_EQ(acceptedOptions("acl"), (std::set<std::string>{"allow", "block", "drop", "filter"}));
  EXPECT_EQ(acceptedOptions("hosts"),
            (std::set<std::string>{"fallthrough", "fallthrough_unsupported", "no_reverse", "reload", "ttl"}));
}

}  // namespace
}  // namespace idetcd::app
