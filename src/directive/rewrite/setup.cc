// The directive `rewrite`: those behind it are asked another question, and their response is made the client's.
#include "directive/rewrite/rules.h"
#include "dns/response.h"
#include "resolve/directive.h"
#include "resolve/inner_question.h"

namespace idetcd::directive {

namespace {

using resolve::QueryOutcome;

class RewriteHandler final : public resolve::Handler {
 public:
  struct Context {
    const resolve::Chain& chain;
    size_t behind;  // the first that is asked
    HashSeed hash_seed;
    resolve::DirectiveId directive;
  };

  RewriteHandler(std::shared_ptr<const std::vector<RewriteRule>> rules, const Context& context)
      : rules_(std::move(rules)),
        context_(context),
        exit_{context.chain, context.directive} {}

  // What an alias leads to is not rewritten.
  QueryOutcome answer(const dns::Query& query, const resolve::Request& request, uint16_t flags) override {
    if (request.inner_depth > 0) return QueryOutcome::next();
    const auto question = applyRules(*rules_, query);
    if (!question) return QueryOutcome::next();
    if (!question->is_name) {
      dns::ResponseBuilder response(query, request.response_limit);
      return QueryOutcome::answer(response.finish(dns::Rcode::kServFail, flags));
    }
    return ask(query, *question, request, flags);
  }

 private:
  using Rules = std::vector<ResponseRule>;

  QueryOutcome ask(const dns::Query& query, const RewrittenQuestion& question, const resolve::Request& request,
                   uint16_t flags) {
    resolve::InnerQuestion asked(query, question.name.wire(), question.type, request.response_limit,
                                 context_.hash_seed);
    if (!asked.isQuery()) return resolve::refuse(query, request.response_limit, flags);
    resolve::LateAnswer late([&] { return std::make_unique<resolve::DeferredReply>(query, request); },
                             [this, rules = question.response](resolve::KeptReply reply, const dns::MessageView& response) {
                               finish(*reply, response, rules);
                             });
    late.question_end = asked.query().question_end;
    resolve::Request inner = request;
    inner.deferrer = &late;
    inner.is_inner = true;
    inner.response_limit = asked.limit();
    inner.name_exists = false;  // of the client's
    const QueryOutcome outcome = context_.chain.runFrom(context_.behind, asked.query(), inner, flags);
    if (outcome.kind != QueryOutcome::Kind::kAnswer) return outcome;
    const auto response = rewriteResponse(query, asked.answerOf(outcome.size), question.response);
    return QueryOutcome::answer(dns::writeRewritten(response, query, request.response_limit));
  }

  void finish(resolve::DeferredReply& reply, const dns::MessageView& response, const Rules& rules) const {
    const auto rewritten = rewriteResponse(reply.query(), response, rules);
    exit_.send(reply, [&rewritten](const dns::Query& query, size_t limit) {
      return dns::writeRewritten(rewritten, query, limit);
    });
  }

  const std::shared_ptr<const std::vector<RewriteRule>> rules_;
  const Context context_;
  const resolve::LateExit exit_;
};

class RewriteDirective final : public resolve::Configured<std::vector<RewriteRule>> {
 public:
  // A rule's words stand on the line, or in the block.
  Result<void> read(config::DirectiveCursor& cursor, const resolve::Block&) override {
    std::vector<std::string> words = cursor.remainingArgs();
    while (cursor.nextBlock()) {
      words.push_back(cursor.value());
      for (std::string& word : cursor.remainingArgs()) words.push_back(std::move(word));
    }
    auto rule = parseRewriteRule(words);
    if (!rule) return cursor.error(rule.error().message);
    settings_.push_back(std::move(*rule));
    return cursor.finish();
  }
  Result<void> prepare(resolve::Process&, const resolve::Block&) override {
    rules_ = std::make_shared<const std::vector<RewriteRule>>(settings_);
    return {};
  }
  Result<void> addTo(resolve::Chain& chain, const resolve::LoopContext& context) override {
    const RewriteHandler::Context of{.chain = chain,
                                     .behind = chain.size() + 1,
                                     .hash_seed = context.process.hash_seed,
                                     .directive = context.process.names.idOf("rewrite")};
    chain.add(std::make_unique<RewriteHandler>(rules_, of));
    if (std::ranges::any_of(*rules_, [](const RewriteRule& rule) { return rule.from_class.has_value(); }))
      chain.addForOtherClasses(std::make_unique<RewriteHandler>(rules_, of));
    return {};
  }

 private:
  std::shared_ptr<const std::vector<RewriteRule>> rules_;
};

}  // namespace

extern const resolve::DirectiveType kRewriteDirective{
    .name = "rewrite",
    .syntax = "rewrite [continue|stop] name|type|class|ttl|rcode ...",
    .make = resolve::makeDirective<RewriteDirective>};

}  // namespace idetcd::directive
