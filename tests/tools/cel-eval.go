// Evaluates CEL expressions with cel-go, the library that Kubernetes uses: a judge of our
// expressions that shares no code with us. `tests/tools/get cel-eval` builds it.
//
// Reads one JSON object per line, {"expression": TEXT, "variables": {NAME: VALUE}}, and
// writes one line for each: the value as JSON, or "error: " and why.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"

	"github.com/google/cel-go/cel"
)

type question struct {
	Expression string                 `json:"expression"`
	Variables  map[string]interface{} `json:"variables"`
}

func evaluate(line []byte) (interface{}, error) {
	var asked question
	if err := json.Unmarshal(line, &asked); err != nil {
		return nil, err
	}
	var options []cel.EnvOption
	for name := range asked.Variables {
		options = append(options, cel.Variable(name, cel.DynType))
	}
	environment, err := cel.NewEnv(options...)
	if err != nil {
		return nil, err
	}
	checked, issues := environment.Compile(asked.Expression)
	if issues.Err() != nil {
		return nil, issues.Err()
	}
	program, err := environment.Program(checked)
	if err != nil {
		return nil, err
	}
	value, _, err := program.Eval(asked.Variables)
	if err != nil {
		return nil, err
	}
	return value.Value(), nil
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		value, err := evaluate(lines.Bytes())
		text, unprintable := json.Marshal(value)
		if err == nil {
			err = unprintable
		}
		if err != nil {
			fmt.Printf("error: %q\n", err.Error())
		} else {
			fmt.Println(string(text))
		}
	}
}
