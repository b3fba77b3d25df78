// What the subcommands print of what the server says, and how they are found.
#include <string>

#include <gtest/gtest.h>

#include "cli/command.h"
#include "cli/slots.h"

namespace idetcd::cli {
namespace {

using nlohmann::json;

TEST(Commands, AreFoundByName) {
  EXPECT_TRUE(isCommand("status"));
  EXPECT_TRUE(isCommand("help"));
  EXPECT_FALSE(isCommand("stray"));
  EXPECT_FALSE(isCommand("-status"));
  for (const Command& command : commands()) {
    EXPECT_NE(overview().find(std::string("  ") + std::string(command.name)), std::string::npos);
    for (const Option& option : command.grammar.options) {
      EXPECT_NE(usage(command).find("--" + std::string(option.name)), std::string::npos);
      EXPECT_NE(bashCompletion().find("--" + std::string(option.name)), std::string::npos);
    }
  }
}

TEST(Commands, StatusOfAServerWithoutSections) {
  EXPECT_EQ(
      statusText(json::parse(R"({"version":"1.0.0","pid":12,"uptime_seconds":8000.5,"ready":true,"not_ready":[]})")),
      "idetcd  1.0.0, process 12, up 2 h 13 min\n"
      "ready   yes\n");
  EXPECT_EQ(statusText(json::object()), "idetcd  ?, process -, up -\nready   NO\n");
}

TEST(Commands, StatusWithAllSections) {
  const json said =
      json::parse(R"({"version":"1.0.0","pid":12,"uptime_seconds":1,"ready":false,"not_ready":["idetcd: own name"],
    "clusters":[{"pattern":"worker{{.ID}}.tf.local.","name":"worker1.tf.local.","id":1,"token":77,"lease_seconds":20,"lease_left_seconds":17.2,
                 "drained":false,"addresses":["192.0.2.1","2001:db8::1"],"node":"uuid","names":5,"limit":10,"fresh":true,
                 "confirmed_seconds_ago":0.2,"relay":"https://192.0.2.9:41","store":"etcd","store_connected":true,"endpoints":["http://a:2379"],
                 "unused_endpoints":[{"endpoint":"http://b:2379","reason":"it is of another cluster"}]},
                {"pattern":"b","observes":true,"name":null,"lease_left_seconds":null}],
    "queries":{"rate":12.3,"p50_seconds":0.0001,"p99_seconds":null,"seconds":10},
    "caches":[{"block":".:53","entries":3,"bytes":2048,"hits":9,"misses":1}],
    "degraded":[".:53: no upstream answers: 192.0.2.53:53"],
    "upstreams":[{"block":".:53","server":"192.0.2.53:53","up":false,"round_trip_seconds":0.003}]})");
  EXPECT_EQ(statusText(said),
            "idetcd         1.0.0, process 12, up 1.0 s\n"
            "ready          NO\n"
            "  missing      idetcd: own name\n"
            "  degraded     .:53: no upstream answers: 192.0.2.53:53\n"
            "cluster        worker{{.ID}}.tf.local.\n"
            "  name         worker1.tf.local\n"
            "  id, token    1, 77\n"
            "  lease        17.2 s left of 20.0 s\n"
            "  addresses    192.0.2.1 2001:db8::1\n"
            "  node         uuid\n"
            "  names        5 of 10 held\n"
            "  mirror       fresh, confirmed 200 ms ago\n"
            "  through      the relay at https://192.0.2.9:41\n"
            "  etcd         connected for ?: http://a:2379\n"
            "  not used     http://b:2379: it is of another cluster\n"
            "cluster        b\n"
            "  name         none: this node only observes\n"
            "  addresses    -\n"
            "  names        unknown, how many of - held\n"
            "  mirror       never confirmed by etcd\n"
            "  etcd         AWAY for ?: -\n"
            "queries        12/s, p50 0.100 ms, p99 - (last 10.0 s)\n"
            "cache .:53     3 entries, 2.0 KiB, 90 % hits of 10 queries\n"
            "upstream .:53  192.0.2.53:53 DOWN, round trip 3.0 ms\n");
}

TEST(Commands, StatusOfANodeThatIsDrained) {
  const std::string text = statusText(json::parse(R"({"clusters":[{"pattern":"w{{.ID}}.","name":"w1.","drained":true,
    "addresses":["192.0.2.1"],"names":3,"names_in_etcd":7,"limit":5}]})"));
  EXPECT_NE(text.find("  name       w1 (drained)\n"), std::string::npos) << text;
  EXPECT_NE(text.find("  addresses  withheld: 192.0.2.1\n"), std::string::npos) << text;
  EXPECT_NE(text.find("  names      3 of 5 held, 7 names in etcd\n"), std::string::npos) << text;
  EXPECT_NE(statusText(json::parse(R"({"clusters":[{"names":3,"names_in_etcd":3,"limit":5}]})")).find("3 of 5 held\n"),
            std::string::npos);
}

TEST(Commands, WhatTheKernelAnswers) {
  EXPECT_EQ(xdpText(json::parse(R"({"pin":"/sys/fs/bpf/idetcd","pinned":false})")),
            "nothing is pinned in /sys/fs/bpf/idetcd\n");
  const json said =
      json::parse(R"({"pin":"/p","pinned":true,"attached":false,"max_names":1000,"names":5,"addresses":4,"listeners":2,
    "interfaces":[{"name":"lo","wanted":true,"attached":true,"mode":"generic","program":12},
                  {"name":"eth0","wanted":true,"attached":false},
                  {"name":"eth1","wanted":false,"attached":true,"mode":"native","program":11},
                  {"name":"eth2","wanted":false,"attached":false}],
    "zones":[{"name":"tf.local.","whole":true,"believed_seconds":17.25,"names":5,"addresses":4},
             {"name":null,"whole":false,"believed_seconds":0,"names":0,"addresses":0}],
    "answered":[{"type":"AAAA","rcode":"NOERROR","count":7000000000}],"passed":[{"reason":"type","count":3}]})");
  EXPECT_EQ(xdpText(said),
            "pin                       /p\n"
            "interface lo              attached, generic, program 12\n"
            "interface eth0            NOT ATTACHED\n"
            "interface eth1            attached, native, program 11, not in the Corefile\n"
            "interface eth2            pinned, its interface is gone\n"
            "names                     5 of 1000\n"
            "addresses                 4 of 1000\n"
            "listeners                 2\n"
            "zone tf.local             5 names, 4 addresses, whole, believed for 17.2 s\n"
            "zone of another Corefile  0 names, 0 addresses, not whole, NOT BELIEVED\n"
            "answered AAAA NOERROR     7000000000\n"
            "passed type               3\n");
}

TEST(Commands, MembersOfAnAgeThatIsNotKnown) {
  const std::string text = membersText(json::parse(R"({"clusters":[{"pattern":"w{{.ID}}.","limit":10,"slots":[
    {"id":1,"name":"w1.","age_seconds":null,"age_at_least_seconds":125.5}]}]})"));
  EXPECT_NE(text.find("  > 2 min  "), std::string::npos) << text;
}

TEST(Commands, PatternsThatAreNotThereAreAnsweredWithThoseThatAre) {
  const json said = {{"clusters", {{{"pattern", "a{{.ID}}."}}, {{"pattern", "b{{.ID}}."}}}}};
  EXPECT_EQ(unknownPattern("c.", said).message, "the server has no pattern c., but: a{{.ID}}. b{{.ID}}.");
  EXPECT_EQ(unknownPattern("c.", json::object()).message, kNoCluster);
  EXPECT_EQ(unknownPattern("c.", said).code, kFailed);
}

TEST(Commands, PeersThatWaitSayForWhat) {
  EXPECT_EQ(peersText(json::parse(
                R"({"peers":[{"cluster":null,"waits_for":"no cluster yet: 1 of 2\u001b","listens":true}]})")),
            "cluster  no cluster yet: 1 of 2\\x1b\n");
  EXPECT_EQ(peersText(json::object()), "");
}

TEST(Commands, PeersAreVotersAndStandbys) {
  const json said = json::parse(R"({"peers":[{"port":2390,"cluster":"c-1","number":2,"founders":5,"listens":false,
    "role":"stands by","connected":true,"doing":"replaces u-9","problem":"no etcd",
    "voters":[{"node":"u-1","address":"192.0.2.1:2390","version":"3.4.23","healthy":true,"leader":true,"learner":false,"in_memory":true,"own":false},
              {"node":"u-9","address":"192.0.2.9:2390","version":"","healthy":false,"leader":false,"learner":true,"own":true}],
    "standbys":[{"node":"u-2","address":"192.0.2.2:2390"}]}]})");
  EXPECT_EQ(peersText(said),
            "cluster     c-1\n"
            "founded by  5, this node is number 2\n"
            "this node   stands by, voters are reached\n"
            "port        2390 CANNOT be listened on\n"
            "PROBLEM     no etcd\n"
            "doing       replaces u-9\n"
            "\n"
            "VOTER  ADDRESS         ETCD    STATE\n"
            "u-1    192.0.2.1:2390  3.4.23  leader, in memory\n"
            "u-9    192.0.2.9:2390  -       learner, AWAY, this node\n"
            "\n"
            "STANDBY  ADDRESS\n"
            "u-2      192.0.2.2:2390\n");
}

TEST(Commands, MembersAreATable) {
  const json said = json::parse(R"({"clusters":[{"pattern":"w{{.ID}}.","limit":10,"slots":[
    {"id":2,"name":"w2.","addresses":[],"node":null,"age_seconds":null,"lease_left_seconds":null,"permanent":true,"drained":true,"own":false},
    {"id":1,"name":"w1.","addresses":["192.0.2.1"],"node":"u\u001b","age_seconds":12.5,"lease_left_seconds":13,"permanent":false,"drained":false,
     "own":true}]}, {"pattern":"empty","limit":3,"slots":[]}]})");
  EXPECT_EQ(membersText(said),
            "w{{.ID}}.: 2 of 10 names are held\n"
            "ID  NAME  ADDRESSES  NODE   AGE     LEASE LEFT\n"
            "1   w1    192.0.2.1  u\\x1b  12.5 s  13.0 s      this node\n"
            "2   w2    -          -      -       none        drained or sick, permanent\n"
            "\n"
            "empty: 0 of 3 names are held\n");
  EXPECT_EQ(membersText(json::object()), "");
}

TEST(Commands, TopIsATable) {
  const json said = json::parse(R"({"seconds":10,"rate":120.4,"p50_seconds":0.0001,"p99_seconds":0.01,"sampled":9,
    "names":[{"name":"a.\u001b[2J.","type":"A","share":0.41,"rate":49}],"rcodes":{"NOERROR":0.9,"NXDOMAIN":0.1}})");
  EXPECT_EQ(topText(said),
            "120 queries/s, p50 0.100 ms, p99 10 ms (last 10.0 s)\n"
            "NOERROR 90 %, NXDOMAIN 10 %\n"
            "\n"
            "SHARE  QUERIES/S  TYPE  NAME\n"
            "41 %   49         A     a.\\x1b[2J.\n");
  EXPECT_EQ(topText(json::object()), "0 queries/s, p50 -, p99 - (last -)\n\nSHARE  QUERIES/S  TYPE  NAME\n");
}

TEST(Commands, DoctorsListHasAFixBelowEachFinding) {
  const json said = json::parse(R"({"corefile":"Corefile","errors":1,"warnings":2,"findings":[
    {"check":"port","state":"error","finding":"x has 0.0.0.0:53","fix":"stop it"},
    {"check":"resolver","state":"ok","finding":"programs ask this server"},
    {"check":"etcd","state":"warning","finding":"a\u001b","fix":"look"}]})");
  EXPECT_EQ(doctorText(said),
            "ERROR    port      x has 0.0.0.0:53\n"
            "                   -> stop it\n"
            "ok       resolver  programs ask this server\n"
            "WARNING  etcd      a\\x1b\n"
            "                   -> look\n"
            "1 error, 2 warnings\n");
  EXPECT_EQ(doctorText(json::object()), "0 errors, 0 warnings\n");
}

TEST(Commands, DoctorEndsByTheWorst) {
  const auto code_of = [](const std::string& answer) {
    const Arguments arguments = Arguments::parse({}, {}).value();
    const LocalNode node({}, "/nowhere");
    const CorefileWorker worker = [&answer](const CorefileRequest&) -> Result<std::string> { return answer; };
    return doctor({.arguments = arguments, .node = node, .corefile = worker}).code;
  };
  EXPECT_EQ(code_of(R"({"findings":[],"errors":0,"warnings":0})"), kGood);
  EXPECT_EQ(code_of(R"({"findings":[],"errors":0,"warnings":3})"), kNo);
  EXPECT_EQ(code_of(R"({"findings":[],"errors":1,"warnings":3})"), kFailed);
}

}  // namespace
}  // namespace idetcd::cli
