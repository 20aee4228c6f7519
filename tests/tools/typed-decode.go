// Decodes objects of built-in kinds with Kubernetes' own types, as kube-apiserver does: a judge
// of our decoding that shares no code with us. `tests/tools/get typed-decode` builds it.
//
// Reads one object per line and writes one line for each, as JSON: "object" is what Kubernetes
// stores of it before defaults, "strict" what strict decoding says, "error" why it is refused.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubejson "k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
)

type decoded struct {
	Object json.RawMessage `json:"object,omitempty"`
	Strict string          `json:"strict,omitempty"`
	Error  string          `json:"error,omitempty"`
}

var (
	jsonForm = kubejson.NewSerializerWithOptions(kubejson.DefaultMetaFactory, scheme.Scheme, scheme.Scheme,
		kubejson.SerializerOptions{Strict: true})
	storedForm = protobuf.NewSerializer(scheme.Scheme, scheme.Scheme)
)

// stored is the object after it was written to the store and read again.
func stored(object runtime.Object) (runtime.Object, error) {
	// The server of CustomResourceDefinitions stores JSON.
	if object.GetObjectKind().GroupVersionKind().Group == apiextensionsv1.GroupName {
		return object, nil
	}
	bytes, err := runtime.Encode(storedForm, object)
	if err != nil {
		return nil, err
	}
	return runtime.Decode(storedForm, bytes)
}

func decode(line []byte) (result decoded) {
	object, _, err := jsonForm.Decode(line, nil, nil)
	if runtime.IsStrictDecodingError(err) {
		result.Strict = err.Error()
	} else if err != nil {
		result.Error = err.Error()
		return
	}
	if object, err = stored(object); err == nil {
		result.Object, err = runtime.Encode(jsonForm, object)
	}
	if err != nil {
		result.Error = err.Error()
	}
	return
}

func main() {
	if err := apiextensionsv1.AddToScheme(scheme.Scheme); err != nil {
		panic(err)
	}
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 16<<20)
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	for in.Scan() {
		line, err := json.Marshal(decode(in.Bytes()))
		if err != nil {
			panic(err)
		}
		fmt.Fprintf(out, "%s\n", line)
	}
}
