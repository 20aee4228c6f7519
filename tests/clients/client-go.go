// A program on client-go 0.36 as controllers are: typed clients with protobuf bodies, dynamic and
// metadata-only informers, leader election, server-side apply.
//
//	client-go KUBECONFIG NAMESPACE built-in|policies|fleet
//
// With "policies" dynamic and metadata-only clients use Karmada's PropagationPolicies. With "fleet" they
// and a typed one read the Secrets of all members; two exist, and after the restart "b" is deleted.
// It prints "restart" when the server is to be restarted, goes on when it reads a line, and ends
// with what its informers hold, as JSON. A failure is an exit status of 1 with its reason.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

var (
	ctx        = context.Background()
	configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	secrets    = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
)

func check(err error, what string) {
	if err != nil {
		fail(what, err)
	}
}

func fail(what string, why any) {
	fmt.Fprintf(os.Stderr, "%s: %v\n", what, why)
	os.Exit(1)
}

// await polls until done; a client sees other clients' writes only in time.
func await(what string, done func() bool) {
	end := time.Now().Add(60 * time.Second)
	for !done() {
		if time.Now().After(end) {
			fail(what, "not in time")
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func configMap(name, value string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"k": value}}
}

// writes uses every verb of the typed clients, whose bodies are protobuf.
func writes(client kubernetes.Interface, namespace string) {
	maps := client.CoreV1().ConfigMaps(namespace)
	for _, name := range []string{"a", "b", "c"} {
		_, err := maps.Create(ctx, configMap(name, "1"), metav1.CreateOptions{})
		check(err, "create")
	}
	_, err := maps.Create(ctx, configMap("a", "1"), metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		fail("a second create", err)
	}
	a, err := maps.Get(ctx, "a", metav1.GetOptions{})
	check(err, "get")
	a.Data["k"] = "2"
	updated, err := maps.Update(ctx, a, metav1.UpdateOptions{})
	check(err, "update")
	if _, err = maps.Update(ctx, a, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		fail("an update of an old version", err)
	}
	patch := []byte(`{"data":{"k":"3"}}`)
	patched, err := maps.Patch(ctx, "a", types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	check(err, "patch")
	if patched.Data["k"] != "3" || patched.ResourceVersion == updated.ResourceVersion {
		fail("patch", patched)
	}
	check(maps.Delete(ctx, "c", metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(mustGet(client, namespace, "c").UID))}), "delete")
	if _, err = maps.Get(ctx, "c", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		fail("a get after delete", err)
	}
}

func mustGet(client kubernetes.Interface, namespace, name string) *corev1.ConfigMap {
	found, err := client.CoreV1().ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{})
	check(err, "get "+name)
	return found
}

func scales(client kubernetes.Interface, namespace string) {
	labels := map[string]string{"app": "web"}
	one := int32(1)
	deployments := client.AppsV1().Deployments(namespace)
	_, err := deployments.Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Replicas: &one,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web:1"}}},
			},
		},
	}, metav1.CreateOptions{})
	check(err, "create a deployment")
	scale, err := deployments.GetScale(ctx, "web", metav1.GetOptions{})
	check(err, "get a scale")
	scale.Spec.Replicas = 3
	scaled, err := deployments.UpdateScale(ctx, "web", scale, metav1.UpdateOptions{})
	check(err, "update a scale")
	if scaled.Spec.Replicas != 3 {
		fail("scale", scaled)
	}
}

// applies is two managers that want the same field.
func applies(client kubernetes.Interface, namespace string) {
	maps := client.CoreV1().ConfigMaps(namespace)
	wanted := func(value string) *applycorev1.ConfigMapApplyConfiguration {
		return applycorev1.ConfigMap("applied", namespace).WithData(map[string]string{"k": value})
	}
	_, err := maps.Apply(ctx, wanted("1"), metav1.ApplyOptions{FieldManager: "one"})
	check(err, "apply")
	_, err = maps.Apply(ctx, wanted("2"), metav1.ApplyOptions{FieldManager: "two"})
	if !apierrors.IsConflict(err) {
		fail("an apply of another manager", err)
	}
	forced, err := maps.Apply(ctx, wanted("2"), metav1.ApplyOptions{FieldManager: "two", Force: true})
	check(err, "a forced apply")
	extracted, err := applycorev1.ExtractConfigMap(forced, "two")
	check(err, "extract")
	if !reflect.DeepEqual(extracted.Data, map[string]string{"k": "2"}) {
		fail("what the manager owns", extracted.Data)
	}
}

// elects has two candidates; the second leads when the first one has released the lease.
func elects(client kubernetes.Interface, namespace string) {
	led := make(chan string, 2)
	candidate := func(name string) context.CancelFunc {
		lock := &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Name: "leader", Namespace: namespace},
			Client:     client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: name},
		}
		running, stop := context.WithCancel(ctx)
		go leaderelection.RunOrDie(running, leaderelection.LeaderElectionConfig{
			Lock: lock, ReleaseOnCancel: true,
			LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 200 * time.Millisecond,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(context.Context) { led <- name },
				OnStoppedLeading: func() {},
			},
		})
		return stop
	}
	next := func() string {
		select {
		case name := <-led:
			return name
		case <-time.After(60 * time.Second):
			fail("leader election", "not in time")
			return ""
		}
	}
	stop := candidate("first")
	if name := next(); name != "first" {
		fail("the leader", name)
	}
	second := candidate("second")
	stop()
	if name := next(); name != "second" {
		fail("the next leader", name)
	}
	second()
}

// view is name to resource version.
func view(objects []any) map[string]string {
	held := map[string]string{}
	for _, object := range objects {
		accessor, err := meta.Accessor(object)
		check(err, "an object of an informer")
		held[accessor.GetName()] = accessor.GetResourceVersion()
	}
	return held
}

func listed(client kubernetes.Interface, namespace string) map[string]string {
	list, err := client.CoreV1().ConfigMaps(namespace).List(ctx, metav1.ListOptions{})
	check(err, "list")
	objects, err := meta.ExtractList(list)
	check(err, "list")
	return view(anys(objects))
}

func anys(objects []runtime.Object) []any {
	converted := make([]any, 0, len(objects))
	for _, object := range objects {
		converted = append(converted, object)
	}
	return converted
}

func main() {
	config, err := clientcmd.BuildConfigFromFlags("", os.Args[1])
	check(err, "the kubeconfig")
	namespace := os.Args[2]
	config.QPS, config.Burst = 1000, 1000
	typed := rest.CopyConfig(config)
	typed.ContentType = runtime.ContentTypeProtobuf
	typed.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	client := kubernetes.NewForConfigOrDie(typed)
	if os.Args[3] == "fleet" {
		fleet(config, client, namespace)
		return
	}
	_, err = client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	check(err, "create the namespace")

	run := builtIn
	if os.Args[3] == "policies" {
		run = policies
	}
	run(config, client, namespace)
}

// anyClient is what the program does again after the restart, with any kind.
type anyClient struct {
	create func(name string) error
	delete func(name string) error
	list   func() map[string]string
	view   func([]any) map[string]string
	stores map[string]cache.SharedIndexInformer
}

func (c anyClient) start() {
	never := make(chan struct{})
	for name, informer := range c.stores {
		go informer.Run(never)
		await("the sync of the informer "+name, informer.HasSynced)
	}
}

func (c anyClient) agree() bool {
	want := c.list()
	for _, informer := range c.stores {
		if !reflect.DeepEqual(c.view(informer.GetStore().List()), want) {
			return false
		}
	}
	return true
}

// restart ends the program with the view of its informers.
func (c anyClient) restart() {
	await("informers that agree with a list", c.agree)
	fmt.Println("restart")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		fail("the line after the restart", err)
	}
	await("a write after the restart", func() bool {
		err := c.create("after")
		return err == nil || apierrors.IsAlreadyExists(err)
	})
	check(c.delete("b"), "delete after the restart")
	await("a deleted object that is gone", func() bool {
		_, exists := c.list()["b"]
		return !exists
	})
	await("informers that agree after the restart", c.agree)
	check(json.NewEncoder(os.Stdout).Encode(c.view(c.stores["metadata"].GetStore().List())), "the view")
}

func builtIn(config *rest.Config, client kubernetes.Interface, namespace string) {
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace))
	maps := client.CoreV1().ConfigMaps(namespace)
	all := anyClient{
		create: func(name string) error {
			_, err := maps.Create(ctx, configMap(name, "1"), metav1.CreateOptions{})
			return err
		},
		delete: func(name string) error { return maps.Delete(ctx, name, metav1.DeleteOptions{}) },
		list:   func() map[string]string { return listed(client, namespace) },
		view:   view,
		stores: untypedInformers(config, namespace, configMaps),
	}
	all.stores["typed"] = factory.Core().V1().ConfigMaps().Informer()
	all.start()
	writes(client, namespace)
	scales(client, namespace)
	applies(client, namespace)
	elects(client, namespace)
	all.restart()
}

// fleet follows the objects of all members, of which one is written.
func fleet(config *rest.Config, client kubernetes.Interface, namespace string) {
	groups, err := restmapper.GetAPIGroupResources(client.Discovery())
	check(err, "the groups of all members")
	mapping, err := restmapper.NewDiscoveryRESTMapper(groups).RESTMapping(schema.GroupKind{Group: "apps", Kind: "Deployment"})
	check(err, "a kind of the members")
	if mapping.Scope.Name() != meta.RESTScopeNameNamespace {
		fail("the scope of Deployments", mapping.Scope.Name())
	}
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace))
	core := client.CoreV1()
	inEdge := func(request *rest.Request) *rest.Request {
		return request.Namespace(namespace).Resource("secrets").Param("cluster", "edge")
	}
	all := anyClient{
		create: func(name string) error {
			secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}}
			return inEdge(core.RESTClient().Post()).Body(secret).Do(ctx).Error()
		},
		delete: func(name string) error {
			return inEdge(core.RESTClient().Delete()).Name(name).Do(ctx).Error()
		},
		list: func() map[string]string {
			list, err := core.Secrets(namespace).List(ctx, metav1.ListOptions{})
			if err != nil {
				return nil
			}
			objects, err := meta.ExtractList(list)
			check(err, "list")
			return names(anys(objects))
		},
		view:   names,
		stores: untypedInformers(config, namespace, secrets),
	}
	all.stores["typed"] = factory.Core().V1().Secrets().Informer()
	all.start()
	all.restart()
}

// names is name to cluster: lists and watches have versions of their own, and each is right.
func names(objects []any) map[string]string {
	held := map[string]string{}
	for _, object := range objects {
		accessor, err := meta.Accessor(object)
		check(err, "an object of an informer")
		held[accessor.GetName()] = accessor.GetLabels()["resource.karmada.io/cached-from-cluster"]
	}
	return held
}

func untypedInformers(config *rest.Config, namespace string, kind schema.GroupVersionResource) map[string]cache.SharedIndexInformer {
	dynamicFactory := dynamicinformer.NewFilteredDynamicSharedInformerFactory(dynamic.NewForConfigOrDie(config), 0, namespace, nil)
	metadataFactory := metadatainformer.NewFilteredSharedInformerFactory(metadata.NewForConfigOrDie(config), 0, namespace, nil)
	return map[string]cache.SharedIndexInformer{
		"dynamic":  dynamicFactory.ForResource(kind).Informer(),
		"metadata": metadataFactory.ForResource(kind).Informer(),
	}
}

// policy is a PropagationPolicy whose priority the test writes.
func policy(name string, priority int64) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "policy.karmada.io/v1alpha1",
		"kind":       "PropagationPolicy",
		"metadata":   map[string]any{"name": name},
		"spec": map[string]any{
			"resourceSelectors": []any{map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "name": "none"}},
			"placement":         map[string]any{"clusterAffinity": map[string]any{"clusterNames": []any{"none"}}},
			"priority":          priority,
		},
	}}
}

func policies(config *rest.Config, client kubernetes.Interface, namespace string) {
	kind := schema.GroupVersionResource{Group: "policy.karmada.io", Version: "v1alpha1", Resource: "propagationpolicies"}
	policies := dynamic.NewForConfigOrDie(config).Resource(kind).Namespace(namespace)
	all := anyClient{
		create: func(name string) error {
			_, err := policies.Create(ctx, policy(name, 1), metav1.CreateOptions{})
			return err
		},
		delete: func(name string) error { return policies.Delete(ctx, name, metav1.DeleteOptions{}) },
		list: func() map[string]string {
			list, err := policies.List(ctx, metav1.ListOptions{})
			check(err, "list")
			objects, err := meta.ExtractList(list)
			check(err, "list")
			return view(anys(objects))
		},
		view:   view,
		stores: untypedInformers(config, namespace, kind),
	}
	all.start()
	policyWrites(policies)
	policyApplies(policies)
	elects(client, namespace)
	all.restart()
}

func policyWrites(policies dynamic.ResourceInterface) {
	for _, name := range []string{"a", "b", "c"} {
		_, err := policies.Create(ctx, policy(name, 1), metav1.CreateOptions{})
		check(err, "create")
	}
	if _, err := policies.Create(ctx, policy("a", 1), metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		fail("a second create", err)
	}
	a, err := policies.Get(ctx, "a", metav1.GetOptions{})
	check(err, "get")
	check(unstructured.SetNestedField(a.Object, int64(2), "spec", "priority"), "set")
	_, err = policies.Update(ctx, a, metav1.UpdateOptions{})
	check(err, "update")
	if _, err = policies.Update(ctx, a, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		fail("an update of an old version", err)
	}
	patch := []byte(`{"spec":{"priority":3}}`)
	patched, err := policies.Patch(ctx, "a", types.MergePatchType, patch, metav1.PatchOptions{})
	check(err, "patch")
	if priority, _, _ := unstructured.NestedInt64(patched.Object, "spec", "priority"); priority != 3 {
		fail("patch", patched)
	}
	c, err := policies.Get(ctx, "c", metav1.GetOptions{})
	check(err, "get")
	check(policies.Delete(ctx, "c", metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(c.GetUID()))}), "delete")
	// The controllers remove their finalizer first.
	await("a policy that is gone", func() bool {
		_, err := policies.Get(ctx, "c", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
}

func policyApplies(policies dynamic.ResourceInterface) {
	_, err := policies.Apply(ctx, "applied", policy("applied", 1), metav1.ApplyOptions{FieldManager: "one"})
	check(err, "apply")
	_, err = policies.Apply(ctx, "applied", policy("applied", 2), metav1.ApplyOptions{FieldManager: "two"})
	if !apierrors.IsConflict(err) {
		fail("an apply of another manager", err)
	}
	forced, err := policies.Apply(ctx, "applied", policy("applied", 2), metav1.ApplyOptions{FieldManager: "two", Force: true})
	check(err, "a forced apply")
	if priority, _, _ := unstructured.NestedInt64(forced.Object, "spec", "priority"); priority != 2 {
		fail("a forced apply", forced)
	}
}
