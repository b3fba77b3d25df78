#include "directive/template/go_template.h"

#include "directive/template/go_template_internal.h"

namespace idetcd::directive {

namespace {

using template_parts::Command;
using template_parts::GroupName;
using template_parts::isTrue;
using template_parts::Operand;
using template_parts::Pipeline;
using template_parts::TemplateField;
using template_parts::textOf;
using template_parts::Value;

Value valueOf(TemplateField field, const TemplateData& data) {
  switch (field) {
    case TemplateField::kZone:
      return data.zone;
    case TemplateField::kName:
      return data.name;
    case TemplateField::kClass:
      return data.rr_class;
    case TemplateField::kType:
      return data.type;
    case TemplateField::kRemote:
      return data.remote;
    case TemplateField::kMatch:
      return data.match;
    case TemplateField::kGroup:
      return data.group;
    case TemplateField::kQuestionName:
      return data.question.name;
    case TemplateField::kQuestionType:
      return data.question.type;
    case TemplateField::kQuestionClass:
      return data.question.rr_class;
  }
  return false;
}

Result<Value> evaluate(const Pipeline& pipeline, const TemplateData& data);

Result<Value> evaluate(const Operand& operand, const TemplateData& data) {
  if (const auto* value = std::get_if<Value>(&operand.what)) return *value;
  if (const auto* field = std::get_if<TemplateField>(&operand.what)) return valueOf(*field, data);
  if (const auto* group = std::get_if<GroupName>(&operand.what)) {
    const auto found = data.group.find(group->name);
    return Value(found != data.group.end() ? found->second : std::string("<no value>"));  // as Go says it
  }
  return evaluate(*std::get<std::shared_ptr<const Pipeline>>(operand.what), data);
}

// `last`: from the command before; null: there is none.
Result<Value> evaluate(const Command& command, const Value* last, const TemplateData& data) {
  if (command.function == nullptr) return evaluate(command.operands.front(), data);
  const bool is_lazy = command.function->call == nullptr;
  const bool stops_at = command.function->name == "or";
  std::vector<Value> values;
  for (size_t i = 0; i < command.operands.size() + (last != nullptr ? 1 : 0); ++i) {
    auto value = i < command.operands.size() ? evaluate(command.operands[i], data) : Result<Value>(*last);
    if (!value || (is_lazy && isTrue(*value) == stops_at)) return value;
    values.push_back(std::move(*value));
  }
  if (is_lazy) return values.back();
  return command.function->call(values);
}

Result<Value> evaluate(const Pipeline& pipeline, const TemplateData& data) {
  std::optional<Value> last;
  for (const Command& command : pipeline.commands) {
    auto value = evaluate(command, last ? &*last : nullptr, data);
    if (!value) return value;
    last = std::move(*value);
  }
  return *last;
}

Result<void> expandNodes(const std::vector<GoTemplate::Node>& nodes, const TemplateData& data, std::string& text) {
  for (const GoTemplate::Node& node : nodes) {
    if (node.kind == GoTemplate::Node::Kind::kText) {
      text += node.text;
      continue;
    }
    const auto value = evaluate(node.pipeline, data);
    if (!value) return tl::unexpected(value.error());
    if (node.kind == GoTemplate::Node::Kind::kPrint) {
      text += textOf(*value);
    } else if (auto done = expandNodes(isTrue(*value) ? node.then : node.otherwise, data, text); !done) {
      return done;
    }
  }
  return {};
}

}  // namespace

GoTemplate::GoTemplate(std::vector<Node> nodes, std::vector<std::string> groups)
    : nodes_(std::move(nodes)), groups_(std::move(groups)) {}
GoTemplate::GoTemplate(GoTemplate&&) noexcept = default;
GoTemplate& GoTemplate::operator=(GoTemplate&&) noexcept = default;
GoTemplate::~GoTemplate() = default;

Result<GoTemplate> GoTemplate::parse(std::string_view text) {
  std::vector<std::string> groups;
  auto nodes = template_parts::parseTemplate(text, groups);
  if (!nodes) return tl::unexpected(nodes.error());
  return GoTemplate(std::move(*nodes), std::move(groups));
}

Result<std::string> GoTemplate::expand(const TemplateData& data) const {
  std::string text;
  if (auto done = expandNodes(nodes_, data, text); !done) return tl::unexpected(done.error());
  return text;
}

bool GoTemplate::isConstant() const {
  return std::ranges::all_of(nodes_, [](const Node& node) { return node.kind == Node::Kind::kText; });
}

}  // namespace idetcd::directive
