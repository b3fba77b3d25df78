// A Corefile: any text gives blocks or an error that says where, in bounded time and memory, without touching a file.
#include <string>
#include <string_view>

#include "config/corefile.h"
#include "fuzz/check.h"

namespace {

using namespace idetcd;

// Files that import themselves and each other, and variables that look like more of the same.
class FuzzEnvironment final : public config::Environment {
 public:
  std::string variable(std::string_view name) const override {
    if (name == "PORT") return "1053";
    if (name == "SELF") return "{$SELF} { }";
    return "";
  }
  std::string absolutePath(const std::string& path) const override {
    return path.starts_with("/") ? path : "/fuzz/" + path;
  }
  std::vector<std::string> glob(const std::string& pattern) const override {
    if (pattern.find('*') != std::string::npos) return {"/fuzz/a", "/fuzz/b"};
    if (pattern == "/fuzz/a" || pattern == "/fuzz/b") return {pattern};
    return {};
  }
  Result<std::string> readFile(const std::string& path, size_t max_bytes) const override {
    const std::string text = path == "/fuzz/a" ? "whoami\nimport b\n" : "log\nimport a\n";
    if (text.size() > max_bytes) return fail("too large");
    return text;
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const config::ParseOptions options{.known_directives = {"idetcd", "bind", "errors", "log", "whoami"},
                                     .default_port = 53,
                                     .listen_directive = "bind"};
  const Result<config::Corefile> corefile = config::parseCorefile("Corefile", text, options, FuzzEnvironment());
  if (!corefile) {
    FUZZ_CHECK(corefile.error().message.find(" - Error during parsing: ") != std::string::npos);
    return 0;
  }
  for (const config::ServerBlock& block : corefile->blocks) {
    FUZZ_CHECK(!block.keys.empty());
    FUZZ_CHECK(!block.file.empty() && block.line > 0);
    for (const config::Directive& directive : block.directives) {
      FUZZ_CHECK(directive.line > 0);
      bool known = false;
      for (const std::string& name : options.known_directives) known = known || name == directive.name;
      FUZZ_CHECK(known);
      int depth = 0;
      for (const config::Token& token : directive.tokens) {
        depth += token.opens() ? 1 : token.closes() ? -1 : 0;
        FUZZ_CHECK(depth >= 0);
      }
      FUZZ_CHECK(depth == 0);
    }
  }
  return 0;
}
