// Evaluates CEL expressions with cel-go, the library that Kubernetes uses: a judge of our
// expressions that shares no code with us. `tests/tools/get cel-eval` builds it.
//
// Reads one JSON object per line, {"expression": TEXT, "variables": {NAME: VALUE}}, and
// writes one line for each: the value as JSON, or "error: " and why.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
)

type question struct {
	Expression string                 `json:"expression"`
	Variables  map[string]interface{} `json:"variables"`
}

// Numbers without a fraction are integers, as Kubernetes decodes them.
func decoded(value interface{}) interface{} {
	switch v := value.(type) {
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
		n, _ := v.Float64()
		return n
	case []interface{}:
		for i := range v {
			v[i] = decoded(v[i])
		}
	case map[string]interface{}:
		for k := range v {
			v[k] = decoded(v[k])
		}
	}
	return value
}

// What encoding/json can print of a value, at any depth.
func printable(value ref.Val) interface{} {
	switch v := value.(type) {
	case traits.Lister:
		items := []interface{}{}
		for i := v.Iterator(); i.HasNext() == types.True; {
			items = append(items, printable(i.Next()))
		}
		return items
	case traits.Mapper:
		entries := map[string]interface{}{}
		for i := v.Iterator(); i.HasNext() == types.True; {
			key := i.Next()
			entries[fmt.Sprint(key.Value())] = printable(v.Get(key))
		}
		return entries
	}
	if value == types.NullValue {
		return nil
	}
	return value.Value()
}

func evaluate(line []byte) (interface{}, error) {
	var asked question
	decoder := json.NewDecoder(bytes.NewReader(line))
	decoder.UseNumber()
	if err := decoder.Decode(&asked); err != nil {
		return nil, err
	}
	for name, value := range asked.Variables {
		asked.Variables[name] = decoded(value)
	}
	// The options of Kubernetes' environment that decide about standard expressions.
	options := []cel.EnvOption{cel.HomogeneousAggregateLiterals(), cel.DefaultUTCTimeZone(true)}
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
	return printable(value), nil
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
