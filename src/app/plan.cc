#include "app/plan.h"

#include "config/option_table.h"
#include "directive/order.h"

namespace idetcd::app {

namespace {

using resolve::Block;
using resolve::DirectiveType;
using Warnings = std::vector<std::string>;

tl::unexpected<Error> unknownDirective(const config::Directive& directive) {
  const auto foreign = directive::foreignDirectives();
  std::vector<std::string_view> names;
  for (const DirectiveType* type : directive::directives()) names.push_back(type->name);
  constexpr std::string_view kLists = "`idetcd -plugins` lists those that are there";
  std::string what = fmt::format("; {}", kLists);
  if (std::ranges::find(foreign, directive.name) != foreign.end()) {
    what = fmt::format(": CoreDNS has it, it is not supported here; remove it, or write another: {}", kLists);
  } else if (const auto meant = config::nearest(directive.name, names); !meant.empty()) {
    what = fmt::format(", did you mean '{}'?", meant);
  }
  return config::errorAt(directive.file, directive.line, fmt::format("Unknown directive '{}'{}", directive.name, what));
}

Result<void> readDirective(const DirectiveType& type, const config::Directive& directive, Block& block) {
  config::DirectiveCursor cursor(directive);
  auto known = std::find_if(block.directives.begin(), block.directives.end(),
                            [&type](const auto& entry) { return entry.first == &type; });
  if (known == block.directives.end()) {
    known = block.directives.emplace(known, &type, type.make());
  } else if (type.once) {
    return cursor.error(fmt::format("{} can be used once in a server block", type.name));
  }
  if (const auto read = known->second->read(cursor, block); !read) {
    return fail(config::withSyntax(read.error().message, type.syntax));
  }
  return {};
}

void sortDirectives(Block& block) {
  const auto order = directive::directives();
  const auto rank = [order](const auto& entry) { return std::find(order.begin(), order.end(), entry.first); };
  std::sort(block.directives.begin(), block.directives.end(),
            [&rank](const auto& a, const auto& b) { return rank(a) < rank(b); });
}

void checkCertificate(const config::ServerBlock& text, config::Problems& problems) {
  const auto is_encrypted = [](const config::ServerKey& key) { return key.scheme != config::Scheme::kDns; };
  const auto key = std::ranges::find_if(text.keys, is_encrypted);
  if (key == text.keys.end() ||
      std::ranges::find(text.directives, "tls", &config::Directive::name) != text.directives.end())
    return;
  problems.add(config::errorAt(
      text.file, text.line, fmt::format("{} needs a certificate in its server block; write: tls CERT KEY", key->text)));
}

Block readBlock(const config::ServerBlock& text, NamedFiles files, Warnings& warnings, config::Problems& problems) {
  Block block;
  block.keys = text.keys;
  for (const config::Directive& directive : text.directives) {
    const DirectiveType* type = directive::findDirective(directive.name);
    if (type == nullptr) {
      problems.add(unknownDirective(directive).value().message);
      continue;
    }
    if (auto read = readDirective(*type, directive, block); !read) problems.add(read.error().message);
    if (files == NamedFiles::kNotRead || type->check_files == nullptr) continue;
    config::NamedFiles named(directive, config::zonesOf(block.keys));
    type->check_files(named);
    for (const Error& error : named.errors()) problems.add(error.message);
    warnings.insert(warnings.end(), named.warnings().begin(), named.warnings().end());
  }
  checkCertificate(text, problems);
  sortDirectives(block);
  return block;
}

// Each directive learns of the others of its type.
void introduce(const std::vector<Block>& blocks) {
  for (const DirectiveType* type : directive::directives()) {
    std::vector<resolve::Directive*> all;
    for (const Block& block : blocks) {
      for (const auto& [of_type, directive] : block.directives) {
        if (of_type == type) all.push_back(directive.get());
      }
    }
    for (resolve::Directive* directive : all) directive->checkTogether(all);
  }
}

void check(const std::vector<Block>& blocks, config::Problems& problems) {
  for (const Block& block : blocks) {
    for (const auto& [type, directive] : block.directives) {
      if (auto checked = directive->check(block); !checked) problems.add(checked.error().message);
    }
  }
}

}  // namespace

Result<Plan> makePlan(std::string_view name, std::string_view text, uint16_t default_port, NamedFiles files,
                      const config::Environment& environment) {
  std::vector<Error> errors;
  // Any directive is known to the parser, so that it reads on after one that is not.
  const config::ParseOptions options{
      .known_directives = {}, .default_port = default_port, .listen_directive = "bind", .errors = &errors};
  const auto corefile = config::parseCorefile(name, text, options, environment);
  config::Problems problems;
  for (const Error& error : errors) problems.add(error.message);
  if (!corefile) problems.add(corefile.error().message);
  if (!corefile) return tl::unexpected(problems.result().error());
  if (corefile->blocks.empty() && problems.empty())
    return config::errorAt(name, 1, "no server block; write: . { ... }");
  Plan plan;
  plan.warnings = corefile->warnings;
  for (const config::ServerBlock& block : corefile->blocks)
    plan.blocks.push_back(readBlock(block, files, plan.warnings, problems));
  if (auto all = problems.result(); !all) return tl::unexpected(all.error());
  introduce(plan.blocks);
  check(plan.blocks, problems);
  if (auto all = problems.result(); !all) return tl::unexpected(all.error());
  return plan;
}

Result<std::vector<SocketAddress>> boundAddresses(const Block& block) {
  std::vector<SocketAddress> addresses;
  for (const auto& [type, directive] : block.directives) {
    auto bound = directive->listenAddresses();
    if (!bound) return bound;
    addresses.insert(addresses.end(), bound->begin(), bound->end());
  }
  return addresses;
}

Result<void> beforeConfinement(const Plan& plan) {
  for (const Block& block : plan.blocks) {
    for (const auto& [type, directive] : block.directives) {
      if (auto done = directive->beforeConfinement(); !done) return done;
    }
  }
  return {};
}

}  // namespace idetcd::app
