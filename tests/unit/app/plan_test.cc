// Every directive of a server block but `idetcd` (plan_cluster_test.cc): what its options come to, what they are where
// they are not named, and what is refused.
#include "app/plan.h"

#include <string>

#include <gtest/gtest.h>

namespace idetcd::app {
namespace {

using namespace std::chrono_literals;
using Policy = resolve::Forwarder::Policy;

Result<Plan> planOf(const std::string& directives) {
  return makePlan("Corefile", ".:0 {\n" + directives + "\n}\n", 53);
}

BlockPlan accepted(const std::string& directives) {
  auto plan = planOf(directives);
  if (plan) return std::move(plan->blocks.at(0));
  ADD_FAILURE() << directives << ": " << plan.error().message;
  return {};
}

testing::AssertionResult refused(const std::string& directives, const std::string& why, int line = 2) {
  const auto plan = planOf(directives);
  if (plan) return testing::AssertionFailure() << directives << ": it was accepted";
  const std::string& message = plan.error().message;
  const std::string place = "Corefile:" + std::to_string(line) + " - Error during parsing: ";
  if (message.starts_with(place) && message.find(why) != std::string::npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << directives << ": " << message;
}

resolve::Forwarder::Options forward(const std::string& options, const std::string& to = "192.0.2.1") {
  const BlockPlan plan = accepted("forward . " + to + " {\n" + options + "\n}");
  return plan.forward.empty() ? resolve::Forwarder::Options{} : plan.forward.front();
}
testing::AssertionResult forwardRefused(const std::string& option, const std::string& why) {
  return refused("forward . 192.0.2.1 {\n" + option + "\n}", why, 3);
}

std::vector<std::string> textsOf(const std::vector<dns::Name>& names) {
  std::vector<std::string> texts;
  for (const dns::Name& name : names) texts.push_back(name.toString());
  return texts;
}
using Texts = std::vector<std::string>;

TEST(Plan, SaysAllThatIsWrongAndWhatToWrite) {
  const auto plan = planOf("foward . 192.0.2.1\ncache {\nsucess 5\nprefetch\n}\nbufsize 1");
  ASSERT_FALSE(plan);
  EXPECT_EQ(
      plan.error().message,
      "Corefile:2 - Error during parsing: Unknown directive 'foward', did you mean 'forward'?\n"
      "Corefile:4 - Error during parsing: unknown property 'sucess', did you mean 'success'?\n"
      "Corefile:5 - Error during parsing: Wrong argument count or unexpected line ending after 'prefetch'; write: "
      "prefetch AMOUNT [DURATION] [PERCENTAGE%]\n"
      "Corefile:7 - Error during parsing: bufsize must be within 512 - 4096: 1; write: bufsize [SIZE], from 512 to "
      "4096");
}

TEST(Plan, WhatIsLikeNothingIsToldTheChoice) {
  EXPECT_TRUE(refused("minimal {\n}\nloop {\nxyz\n}", "write: minimal"));
  EXPECT_TRUE(refused("hosts {\nqwerty\n}", "write: one of ttl, reload, no_reverse, fallthrough, ADDRESS NAME...", 3));
}

TEST(PlanForward, Defaults) {
  const auto options = forward("");
  EXPECT_EQ(textsOf(options.from), Texts{"."});
  ASSERT_EQ(options.to.size(), 1u);
  EXPECT_EQ(options.to[0].server->toString(), "192.0.2.1:53");
  EXPECT_TRUE(options.except.empty() && options.next.empty());
  EXPECT_EQ(options.failover,
            (std::vector{dns::Rcode::kFormErr, dns::Rcode::kServFail, dns::Rcode::kNotImp, dns::Rcode::kRefused}));
  EXPECT_FALSE(options.force_tcp || options.prefer_udp || options.failfast_all_unhealthy_upstreams || options.trust_ad);
  EXPECT_EQ(options.expire, 10s);
  EXPECT_EQ(options.max_fails, 2u);
  EXPECT_EQ(options.policy, Policy::kRandom);
  EXPECT_EQ(options.health_check.interval, 500ms);
  EXPECT_TRUE(options.health_check.recursion_desired && options.health_check.domain.isRoot());
  EXPECT_EQ(options.max_concurrent, 0u);
  EXPECT_EQ(resolve::Forwarder::kAttemptTime, 2s);
  EXPECT_LT(resolve::Forwarder::kTotalTime, 5s);
}

TEST(PlanForward, FromAndTo) {
  const auto options =
      accepted("forward 10.1.0.0/16 192.0.2.1:5353 dns://[2001:db8::1]:54 tls://192.0.2.2").forward.at(0);
  EXPECT_EQ(textsOf(options.from), Texts{"1.10.in-addr.arpa."});
  ASSERT_EQ(options.to.size(), 3u);
  EXPECT_EQ(options.to[0].server->toString(), "192.0.2.1:5353");
  EXPECT_EQ(options.to[1].server->toString(), "[2001:db8::1]:54");
  EXPECT_EQ(options.to[2].server->toString(), "tls://192.0.2.2:853");
  EXPECT_EQ(accepted("forward a. 192.0.2.1\nforward . 192.0.2.2").forward.size(), 2u);
  for (const char* to : {"example.org", "grpc://192.0.2.1", "https://192.0.2.1", "0.0.0.0", "::", "224.0.0.1",
                         "192.0.2.1:0", "192.0.2.1:65536", "/nowhere/resolv.conf", "tls://", "tls://example.org"}) {
    EXPECT_TRUE(refused(std::string("forward . ") + to, to));
  }
  EXPECT_TRUE(refused("forward", "Wrong argument count"));
  EXPECT_TRUE(refused("forward .", "Wrong argument count"));
  EXPECT_TRUE(refused("forward a..b 192.0.2.1", "a..b"));
}

TEST(PlanForward, Options) {
  const auto options = forward(
      "except a. b.example\nforce_tcp\nprefer_udp\nexpire 1m\nmax_fails 0\npolicy sequential\nmax_concurrent 7\n"
      "health_check 2s no_rec domain example.org\nnext NXDOMAIN refused\nfailover ServFail NXDOMAIN\nfailover "
      "REFUSED\nfailfast_all_unhealthy_upstreams");
  EXPECT_EQ(textsOf(options.except), (Texts{"a.", "b.example."}));
  EXPECT_TRUE(options.force_tcp && options.prefer_udp && options.failfast_all_unhealthy_upstreams);
  EXPECT_TRUE(forward("trust-ad").trust_ad);
  EXPECT_EQ(options.expire, 60s);
  EXPECT_EQ(options.max_fails, 0u);
  EXPECT_EQ(options.policy, Policy::kSequential);
  EXPECT_EQ(options.max_concurrent, 7u);
  EXPECT_EQ(options.health_check.interval, 2s);
  EXPECT_FALSE(options.health_check.recursion_desired);
  EXPECT_EQ(options.health_check.domain.toString(), "example.org.");
  EXPECT_EQ(options.next, (std::vector{dns::Rcode::kNxDomain, dns::Rcode::kRefused}));
  EXPECT_EQ(options.failover, (std::vector{dns::Rcode::kServFail, dns::Rcode::kNxDomain, dns::Rcode::kRefused}))
      << "in the place of the default";
  EXPECT_EQ(forward("policy round_robin").policy, Policy::kRoundRobin);
  EXPECT_EQ(forward("health_check 1ns").health_check.interval, 1ms) << "rounded up: zero would be none";
}

TEST(PlanForward, Tls) {
  const auto files = [](const std::string& option) {
    const auto tls = forward(option, "tls://192.0.2.1").tls;
    return Texts{tls.certificate_file, tls.key_file, tls.ca_file, tls.server_name};
  };
  EXPECT_EQ(files("tls"), (Texts{"", "", "", ""}));
  EXPECT_EQ(files("tls ca"), (Texts{"", "", "ca", ""}));
  EXPECT_EQ(files("tls cert key"), (Texts{"cert", "key", "", ""}));
  EXPECT_EQ(files("tls cert key ca\ntls_servername dns.example"), (Texts{"cert", "key", "ca", "dns.example"}));
}

TEST(PlanForward, BadOptions) {
  const std::pair<const char*, const char*> cases[] = {
      {"nosuch", "unknown property 'nosuch'"},
      {"except", "Wrong argument count"},
      {"failover", "Wrong argument count"},
      {"failover NOSUCH", "NOSUCH is not a valid rcode"},
      {"failover SERVFAIL noerror", "NOERROR cannot be used in failover"},
      {"except a..b", "a..b"},
      {"force_tcp yes", "Wrong argument count"},
      {"prefer_udp yes", "Wrong argument count"},
      {"trust-ad yes", "Wrong argument count"},
      {"failfast_all_unhealthy_upstreams yes", "Wrong argument count"},
      {"expire", "Wrong argument count"},
      {"expire soon", "soon"},
      {"expire -1s", "negative"},
      {"max_fails -1", "-1"},
      {"max_fails many", "many"},
      {"max_concurrent -1", "-1"},
      {"max_concurrent 1e3", "1e3"},
      {"tls a b c d", "Wrong argument count"},
      {"tls_servername", "Wrong argument count"},
      {"policy", "Wrong argument count"},
      {"policy best", "unknown policy 'best'"},
      {"health_check", "Wrong argument count"},
      {"health_check no_rec", "no_rec"},
      {"health_check -1s", "negative"},
      {"health_check 1s domain", "domain"},
      {"health_check 1s domain a..b", "a..b"},
      {"health_check 1s always", "always"},
      {"next", "Wrong argument count"},
      {"next NOSUCH", "NOSUCH is not a valid rcode"},
  };
  for (const auto& [option, why] : cases) EXPECT_TRUE(forwardRefused(option, why));
}

TEST(PlanCache, Defaults) {
  const CachePlan plan = accepted("cache").cache.value();
  const auto& options = plan.options;
  EXPECT_EQ(options.success.capacity, 9984u);
  EXPECT_EQ(options.denial.capacity, 9984u);
  EXPECT_EQ(options.success.max_ttl_seconds, 3600u);
  EXPECT_EQ(options.denial.max_ttl_seconds, 1800u);
  EXPECT_EQ(options.success.min_ttl_seconds, 5u);
  EXPECT_EQ(options.denial.min_ttl_seconds, 5u);
  EXPECT_EQ(options.prefetch.amount, 0u);
  EXPECT_EQ(options.prefetch.gap, 1min);
  EXPECT_EQ(options.prefetch.percentage, 10u);
  EXPECT_EQ(options.serve_stale, 0s);
  EXPECT_EQ(options.failure_ttl, 5s);
  EXPECT_FALSE(options.keep_ttl || plan.verify_stale);
  EXPECT_EQ(textsOf(plan.zones), Texts{"."});
}

TEST(PlanCache, Options) {
  const CachePlan plan = accepted(
                             "cache 60 a. b. {\nsuccess 10 20 3\ndenial 40 50 6\nprefetch 2 5s 20%\n"
                             "serve_stale 2h verify\nservfail 5m\nkeepttl\n}")
                             .cache.value();
  const auto& options = plan.options;
  EXPECT_EQ(textsOf(plan.zones), (Texts{"a.", "b."}));
  EXPECT_EQ(options.success.capacity, 10u);
  EXPECT_EQ(options.success.max_ttl_seconds, 20u);
  EXPECT_EQ(options.success.min_ttl_seconds, 3u);
  EXPECT_EQ(options.denial.capacity, 40u);
  EXPECT_EQ(options.denial.max_ttl_seconds, 50u);
  EXPECT_EQ(options.denial.min_ttl_seconds, 6u);
  EXPECT_EQ(options.prefetch.amount, 2u);
  EXPECT_EQ(options.prefetch.gap, 5s);
  EXPECT_EQ(options.prefetch.percentage, 20u);
  EXPECT_EQ(options.serve_stale, 2h);
  EXPECT_TRUE(plan.verify_stale && options.keep_ttl);
  EXPECT_EQ(options.failure_ttl, 5min);
  EXPECT_EQ(accepted("cache {\nserve_stale\n}").cache->options.serve_stale, 1h);
  EXPECT_EQ(accepted("cache {\nserve_stale 1ms immediate\n}").cache->options.serve_stale, 1s) << "rounded up";
  EXPECT_EQ(accepted("cache 30").cache->options.denial.max_ttl_seconds, 30u);
  EXPECT_FALSE(accepted("cache {\ndisable success\n}").cache->options.success.enabled);
  EXPECT_FALSE(accepted("cache {\ndisable denial\n}").cache->options.denial.enabled);
}

TEST(PlanCache, BadOptions) {
  EXPECT_TRUE(refused("cache 0", "zero or negative"));
  EXPECT_TRUE(refused("cache a..b", "a..b"));
  EXPECT_TRUE(refused("cache\ncache", "once", 3));
  const std::pair<const char*, const char*> cases[] = {
      {"nosuch", "unknown property 'nosuch'"},
      {"success", "Wrong argument count"},
      {"success many", "many"},
      {"success 1 2 3 4", "Wrong argument count"},
      {"success 1 0", "zero or negative"},
      {"denial 1 5 6", "larger than the largest"},
      {"prefetch", "Wrong argument count"},
      {"prefetch -1", "positive"},
      {"prefetch 1 soon", "soon"},
      {"prefetch 1 1m 9%", "[10%, 90%]"},
      {"prefetch 1 1m 91%", "[10%, 90%]"},
      {"prefetch 1 1m 50", "[10%, 90%]"},
      {"serve_stale -1s", "negative"},
      {"serve_stale 1h never", "refresh mode: never"},
      {"servfail", "Wrong argument count"},
      {"servfail -1s", "negative"},
      {"servfail 301s", "over 5 minutes"},
      {"disable", "Wrong argument count"},
      {"disable all", "success or denial"},
      {"disable success example.org", "not supported"},
      {"keepttl 1", "Wrong argument count"},
  };
  for (const auto& [option, why] : cases) EXPECT_TRUE(refused(std::string("cache {\n") + option + "\n}", why, 3));
}

TEST(PlanHosts, Options) {
  const auto plain = accepted("hosts").hosts.value();
  EXPECT_EQ(plain.file, "/etc/hosts");
  EXPECT_EQ(plain.ttl_seconds, 3600u);
  EXPECT_EQ(plain.reload, 5s);
  EXPECT_TRUE(!plain.no_reverse && plain.fallthrough.empty() && plain.inline_lines.empty());
  EXPECT_EQ(textsOf(plain.zones), Texts{"."}) << "the block's";

  const auto options =
      accepted("hosts /x a. b. {\n192.0.2.1 c d\n::1 e\nttl 9\nno_reverse\nreload 1m\nfallthrough f.\n}").hosts.value();
  EXPECT_EQ(options.file, "/x");
  EXPECT_EQ(textsOf(options.zones), (Texts{"a.", "b."}));
  EXPECT_EQ(options.inline_lines, (Texts{"192.0.2.1 c d", "::1 e"}));
  EXPECT_EQ(options.ttl_seconds, 9u);
  EXPECT_TRUE(options.no_reverse);
  EXPECT_EQ(options.reload, 1min);
  EXPECT_EQ(textsOf(options.fallthrough), Texts{"f."});
  EXPECT_EQ(textsOf(accepted("hosts {\nfallthrough\n}").hosts->fallthrough), Texts{"."});
  EXPECT_EQ(accepted("hosts {\nreload 1us\n}").hosts->reload, 1ms) << "rounded up: zero means never";
  EXPECT_EQ(accepted("hosts {\nreload 0\n}").hosts->reload, 0ms);
}

TEST(PlanBind, AddressesAndInterfaces) {
  const BindPlan plan = accepted("bind 127.0.0.1 ::1 eth0.100 {\nexcept 127.0.0.2 lo\n}").bind;
  EXPECT_EQ(plan.listen, (Texts{"127.0.0.1", "::1", "eth0.100"}));
  EXPECT_EQ(plan.except, (Texts{"127.0.0.2", "lo"}));
  for (const char* text :
       {"300.1.1.1", "1.2.3", "127.0.0.1:53", "[::1]", "::1:x", "127.0.0.1/8", "sixteen-letters-", "\"\"", "\"a b\""}) {
    EXPECT_TRUE(refused(std::string("bind ") + text, "not an IP address or the name of an interface"));
    EXPECT_TRUE(refused(std::string("bind lo {\nexcept ") + text + "\n}", "not an IP address", 3));
  }
  EXPECT_TRUE(refused("bind", "Wrong argument count"));
  EXPECT_TRUE(refused("bind lo {\nonly lo\n}", "unknown property 'only'", 3));
}

TEST(PlanBlock, SmallDirectives) {
  EXPECT_EQ(accepted("whoami").bufsize, 1232u);
  EXPECT_EQ(accepted("bufsize").bufsize, 1232u);
  EXPECT_EQ(accepted("bufsize 512").bufsize, 512u);
  EXPECT_EQ(accepted("bufsize 4096").bufsize, 4096u);
  EXPECT_EQ(accepted("nsid").nsid, "");
  EXPECT_EQ(accepted("nsid a b").nsid, "a b");
  EXPECT_EQ(accepted("workers 3").workers, 3u);
  EXPECT_TRUE(accepted("errors").errors && accepted("errors stdout").errors);
  EXPECT_TRUE(accepted("any").any && accepted("loop").loop && accepted("minimal").minimal && accepted("whoami").whoami);
  EXPECT_TRUE(accepted("loadbalance").loadbalance && accepted("loadbalance round_robin").loadbalance);
  const std::pair<const char*, const char*> cases[] = {
      {"bufsize 511", "512 - 4096"},
      {"bufsize 4097", "512 - 4096"},
      {"bufsize large", "512 - 4096"},
      {"bufsize 512 512", "Wrong"},
      {"workers", "Wrong"},
      {"workers 0", "1 to 256"},
      {"any x", "Wrong"},
      {"loop x", "Wrong"},
      {"minimal x", "Wrong"},
      {"whoami x", "Wrong"},
      {"loadbalance weighted /x", "'weighted' is not supported"},
      {"loadbalance round_robin x", "Wrong"},
      {"errors /var/log/x", "not supported"},
      {"errors stdout x", "Wrong"},
      {"log a {/x} {/y}", "{/y}"},
  };
  for (const auto& [directive, why] : cases) EXPECT_TRUE(refused(directive, why));
  EXPECT_TRUE(refused("errors {\nstacktrace\n}", "stacktrace is not supported", 3));
  EXPECT_TRUE(refused("errors {\nconsolidate 1s\n}", "Wrong", 3));
  EXPECT_TRUE(refused("log {\nclass some\n}", "some", 3));
}

TEST(PlanBlock, WhatCoreDnsAloneHasIsRefused) {
  for (const char* name :
       {"health", "ready", "prometheus", "reload", "template", "rewrite", "etcd", "kubernetes", "file", "tls"}) {
    EXPECT_TRUE(
        refused(name, std::string("Unknown directive '") + name + "': CoreDNS has it, it is not supported here"));
    EXPECT_TRUE(refused(std::string("whoami\n") + name + " x {\n y\n}", "not supported", 3));
  }
  EXPECT_TRUE(refused("nonsense", "Unknown directive 'nonsense'"));
}

}  // namespace
}  // namespace idetcd::app
