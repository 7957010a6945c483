# A machine with two agents and a stub of claude: activation, scopes, OOM, restart, a switch to another port.
#
# For pkgs.testers.runNixOSTest; the caller imports the module of the daemon.
{ config, ... }:
let
  agents = config.nodes.machine.services.hive-subagent.agents;
  movedPort = 20999;
in
{
  name = "hive-subagent";

  nodes.machine =
    { lib, pkgs, ... }:
    let
      # Says what claude says; what the prompt asks for decides what it does in between.
      claude = pkgs.writeShellScriptBin "claude" ''
        [ "$1" = --version ] && { echo '2.1.197 (Claude Code)'; exit 0; }
        session=00000000-0000-4000-8000-000000000000
        previous=
        for word; do
          case $previous in --session-id | --resume) session=$word ;; esac
          case $word in --session-id=* | --resume=*) session=''${word#*=} ;; esac
          previous=$word
        done
        prompt=$(${pkgs.coreutils}/bin/cat)
        printf '{"type":"system","subtype":"init","session_id":"%s","model":"stub","tools":[],' "$session"
        printf '"mcp_servers":[],"claude_code_version":"2.1.197"}\n'
        case $prompt in
          *eat*) exec ${pkgs.python3Minimal}/bin/python3 -c 'eaten = b"x" * (512 * 1024 * 1024)' ;;
          *stay*) trap 'exit 0' INT; while :; do ${pkgs.coreutils}/bin/sleep 1 & wait $!; done ;;
        esac
        printf '{"type":"result","subtype":"success","is_error":false,"num_turns":1,"result":"PATH=%s umask=%s",' \
          "$PATH" "$(umask)"
        printf '"session_id":"%s","total_cost_usd":0,"terminal_reason":"completed"}\n' "$session"
      '';
      account = uid: {
        isNormalUser = true;
        inherit uid;
      };
      agent = {
        claudePackage = claude;
        extraPackages = [ pkgs.hello ];
      };
    in
    {
      users.users = {
        alice = account 1000;
        bob = account 1001;
      };
      virtualisation.memorySize = 2048;
      services.hive-subagent.agents = {
        alice = agent // {
          workDir = "/home/alice/deep/work";
          limits = {
            MemoryMax = "64M";
            MemorySwapMax = 0;
          };
          sliceConfig.TasksMax = 500;
        };
        bob = agent;
      };
      specialisation.moved.configuration = {
        services.hive-subagent.agents.alice.port = lib.mkForce movedPort;
      };
      environment.etc."recipe.md".text = "Be brief.";
    };

  testScript = ''
    import json

    def call(user: str, port: int, command: str) -> str:
        url = f"http://127.0.0.1:{port}/mcp"
        return machine.succeed(f"su - {user} -c 'hive-subagent --url {url} {command}'")

    def start(user: str, port: int, name: str, trigger: str) -> None:
        call(user, port, f"start {name} /etc/recipe.md --trigger {trigger}")

    def loose_end(user: str, port: int, name: str) -> dict:
        url = f"http://127.0.0.1:{port}/mcp"
        command = f"su - {user} -c 'hive-subagent --url {url} loose-ends --json' | grep '\"{name}\"'"
        machine.wait_until_succeeds(command, timeout=30)
        found = json.loads(call(user, port, "loose-ends --json"))
        return [end for end in found["loose_ends"] if end["name"] == name][-1]

    alice, bob, moved = ${toString agents.alice.port}, ${toString agents.bob.port}, ${toString movedPort}
    machine.wait_for_unit("hive-subagent-alice.socket")
    machine.wait_for_unit("hive-subagent-bob.socket")
    machine.wait_for_unit("user@1000.service")

    with subtest("the first connection starts the daemon as its user"):
        machine.fail("systemctl is-active hive-subagent-alice.service")
        call("alice", alice, "status")
        call("bob", bob, "status")
        for user in ("alice", "bob"):
            pid = machine.succeed(f"systemctl show --value --property=MainPID hive-subagent-{user}").strip()
            owner = machine.succeed(f"stat --format=%U /proc/{pid}").strip()
            assert owner == user, f"{owner} runs the daemon of {user}"

    with subtest("the command finds the daemon of its user"):
        for user in ("alice", "bob"):
            machine.succeed(f"su - {user} -c 'hive-subagent status'")

    with subtest("the working directory is the user's, and so is what lies on the way"):
        for folder in ("/home/alice/deep", "/home/alice/deep/work"):
            owner = machine.succeed(f"stat --format=%U {folder}").strip()
            assert owner == "alice", f"{folder} belongs to {owner}"

    with subtest("a reload is one"):
        machine.succeed("systemctl reload hive-subagent-alice.service")
        call("alice", alice, "status")

    with subtest("another user may not call"):
        machine.fail(f"su - bob -c 'hive-subagent --url http://127.0.0.1:{alice}/mcp status'")

    with subtest("a turn runs in the agent's slice with its limit, and can find programs"):
        start("alice", alice, "stayer", "stay")
        scopes = machine.succeed("find /sys/fs/cgroup/user.slice -name '*.scope' -path '*hive*subagent-alice*'").split()
        assert len(scopes) == 1 and "/user@1000.service/" in scopes[0], scopes
        assert machine.succeed(f"cat '{scopes[0]}/memory.max'").strip() == str(64 * 1024 * 1024)
        call("alice", alice, "interrupt stayer --force")
        start("alice", alice, "quick", "go")
        text = loose_end("alice", alice, "quick")["text"]
        assert "/run/wrappers/bin:" in text and "/hello-" in text and "/run/current-system/sw/bin" in text, text
        assert text.endswith("umask=0022"), text

    with subtest("a turn that takes too much memory is told as killed for it, and the daemon goes on"):
        start("alice", alice, "eater", "eat")
        end = loose_end("alice", alice, "eater")
        assert (end["outcome"], end["cause"]) == ("killed", "oom"), end
        machine.succeed("systemctl is-active hive-subagent-alice.service")

    with subtest("a restart reports what it stopped"):
        start("alice", alice, "victim", "stay")
        machine.succeed("systemctl restart hive-subagent-alice.service")
        assert loose_end("alice", alice, "victim")["cause"] == "daemon stopped"

    with subtest("a switch moves the daemon to another port"):
        machine.succeed("/run/current-system/specialisation/moved/bin/switch-to-configuration test")
        call("alice", moved, "status")
        machine.fail(f"curl --silent --max-time 5 http://127.0.0.1:{alice}/healthz")
        call("bob", bob, "status")

    with subtest("nothing has failed"):
        machine.succeed("test -z \"$(systemctl list-units --failed --plain --no-legend)\"")
  '';
}
