# Makes the CycloneDX document of a build from the output of `cargo metadata`. Arguments:
# $checksums (lines "NAME VERSION SHA256" of Cargo.lock), $debian (lines "NAME VERSION ARCHITECTURE"),
# $version, $revision, $created and $serial.

def reference: "cargo:\(.name)@\(.version)";

# A crate of the registry has an address; one of this repository has none.
def address: if .source == null then {} else {purl: "pkg:cargo/\(.name)@\(.version)"} end;

def licenses:
  if .license == null then {}
  else {licenses: [{expression: (.license | gsub("/"; " OR "))}]} end;

def hashes($sums):
  $sums["\(.name) \(.version)"] as $sum
  | if $sum == null then {} else {hashes: [{alg: "SHA-256", content: $sum}]} end;

def lines: split("\n") | map(select(. != "") | split(" "));

# What the binary is built of: all that it depends on but for tests.
def reachable($edges; $root):
  {seen: {}, open: [$root]}
  | until(.open == [];
      .open[0] as $id
      | .open |= .[1:]
      | if .seen[$id] then . else .seen[$id] = true | .open += $edges[$id] end)
  | .seen;

([$checksums | lines[] | {key: "\(.[0]) \(.[1])", value: .[2]}] | from_entries) as $sums
| ([.packages[] | {key: .id, value: .}] | from_entries) as $packages
| ([.resolve.nodes[] | {key: .id, value: [.deps[] | select(any(.dep_kinds[]; .kind != "dev")) | .pkg]}]
    | from_entries) as $edges
| ([.packages[] | select(.name == "flotilla") | .id][0]) as $root
| (reachable($edges; $root) | keys | map(select(. != $root)) | sort_by($packages[.] | .name, .version)) as $ids
| ([$debian | lines[] | {name: .[0], version: .[1], architecture: .[2]}] | sort_by(.name)) as $system
| {
    bomFormat: "CycloneDX",
    specVersion: "1.5",
    serialNumber: "urn:uuid:\($serial)",
    version: 1,
    metadata: {
      timestamp: $created,
      component: {
        type: "application",
        "bom-ref": "flotilla",
        name: "flotilla",
        version: $version,
        licenses: [{expression: $packages[$root].license}],
        properties: [{name: "revision", value: $revision}]
      }
    },
    components: (
      [$ids[] | $packages[.]
        | {type: "library", "bom-ref": reference, name, version} + hashes($sums) + licenses + address]
      + [$system[]
        | {type: "library", "bom-ref": "deb:\(.name)", name, version,
           purl: "pkg:deb/debian/\(.name)@\(.version | @uri)?arch=\(.architecture)&distro=debian-13"}]
    ),
    dependencies: (
      [{ref: "flotilla", dependsOn: ([$edges[$root][] | $packages[.] | reference] + [$system[] | "deb:\(.name)"] | unique)}]
      + [$ids[] | {ref: ($packages[.] | reference), dependsOn: ([$edges[.][] | $packages[.] | reference] | unique)}]
    )
  }
