(* Theorem (a): online softmax is a commutative monoid.

   A state is None (no visible key yet) or Some (m, l, o): the maximum score, the
   sum of exponentials and the accumulated values, both relative to m.
     merge is associative and commutative with None as its identity;
     direct, the two-pass state of a list of keys, turns ++ into merge;
     folding any binary tree whose leaves are blocks of keys, in any order, gives
     direct of the keys, so that o / l is the softmax average;
     masked keys (score None) count for nothing; a row without a visible key
     gives None.
   No hypothesis on the scores or values: they are any real numbers.

   Source: Milakov and Gimelshein 2018 (arXiv 1805.02867) for the update; Dao et
   al. 2022 (arXiv 2205.14135), section 3.1. *)
From Coq Require Import Reals Lra List Permutation FunctionalExtensionality.
Import ListNotations.
Open Scope R_scope.

Definition vec := nat -> R.
Definition key := (option R * vec)%type.           (* score, None if masked; value *)
Definition state := option (R * R * vec).

Definition merge (a b : state) : state :=
  match a, b with
  | None, s | s, None => s
  | Some (ma, la, oa), Some (mb, lb, ob) =>
      let m := Rmax ma mb in
      Some (m, exp (ma - m) * la + exp (mb - m) * lb,
            fun c => exp (ma - m) * oa c + exp (mb - m) * ob c)
  end.

(* The weight of a key relative to m, and weighted sums over keys. *)
Definition weight (m : R) (k : key) : R :=
  match fst k with Some s => exp (s - m) | None => 0 end.

Fixpoint wsum (m : R) (f : key -> R) (ks : list key) : R :=
  match ks with [] => 0 | k :: ks => weight m k * f k + wsum m f ks end.

Definition omax (a b : option R) : option R :=
  match a, b with
  | None, s | s, None => s
  | Some x, Some y => Some (Rmax x y)
  end.

Fixpoint max_score (ks : list key) : option R :=
  match ks with [] => None | k :: ks => omax (fst k) (max_score ks) end.

(* Two passes: first the maximum, then the sums relative to it. *)
Definition state_at (m : R) (ks : list key) : R * R * vec :=
  (m, wsum m (fun _ => 1) ks, fun c => wsum m (fun k => snd k c) ks).

Definition direct (ks : list key) : state :=
  option_map (fun m => state_at m ks) (max_score ks).

(* Softmax attention, without any maximum. *)
Definition visible (k : key) : bool := match fst k with Some _ => true | None => false end.
Definition softmax_average (ks : list key) (c : nat) : R :=
  wsum 0 (fun k => snd k c) ks / wsum 0 (fun _ => 1) ks.

(* A way to fold: blocks at the leaves, merges at the nodes. *)
Inductive tree := Block (ks : list key) | Node (l r : tree).
Fixpoint flatten (t : tree) : list key :=
  match t with Block ks => ks | Node l r => flatten l ++ flatten r end.
Fixpoint eval (t : tree) : state :=
  match t with Block ks => direct ks | Node l r => merge (eval l) (eval r) end.

(* Weighted sums *)

Lemma wsum_app m f a b : wsum m f (a ++ b) = wsum m f a + wsum m f b.
Proof. induction a; cbn; [ ring | rewrite IHa; ring ]. Qed.

Lemma wsum_shift m m' f ks : wsum m' f ks = exp (m - m') * wsum m f ks.
Proof.
  induction ks as [| [[s |] v] ks IH]; cbn; [ ring | | rewrite IH; ring ].
  replace (s - m') with ((m - m') + (s - m)) by ring.
  rewrite exp_plus, IH. ring.
Qed.

Lemma wsum_masked m f ks : max_score ks = None -> wsum m f ks = 0.
Proof.
  induction ks as [| [[s |] v] ks IH]; cbn; intros H; [ reflexivity | | ].
  - destruct (max_score ks); discriminate.
  - rewrite IH by exact H. ring.
Qed.

Lemma max_score_app a b : max_score (a ++ b) = omax (max_score a) (max_score b).
Proof.
  induction a as [| k a IH]; cbn; [ reflexivity | rewrite IH ].
  destruct (fst k), (max_score a), (max_score b); cbn; trivial.
  now rewrite Rmax_assoc.
Qed.

Lemma max_score_None ks : max_score ks = None <-> forall k, In k ks -> fst k = None.
Proof.
  induction ks as [| k ks IH]; cbn; [ tauto | ].
  split.
  - intros H k' [<- | Hk]; destruct (fst k), (max_score ks); try discriminate;
      trivial; now apply IH.
  - intros H. rewrite (H k) by auto. apply IH. auto.
Qed.

Lemma max_score_ge ks m k s :
  max_score ks = Some m -> In k ks -> fst k = Some s -> s <= m.
Proof.
  revert m. induction ks as [| k0 ks IH]; cbn; intros m Hm Hk Hs;
    [ contradiction | destruct Hk as [-> | Hk] ].
  - rewrite Hs in Hm. destruct (max_score ks); injection Hm as <-; [ apply Rmax_l | lra ].
  - destruct (max_score ks) as [m1 |] eqn:E.
    + specialize (IH m1 eq_refl Hk Hs).
      destruct (fst k0) as [s0 |]; injection Hm as <-; [ | exact IH ].
      apply Rle_trans with (1 := IH), Rmax_r.
    + exfalso. apply max_score_None with (k := k) in E; [ congruence | exact Hk ].
Qed.

(* The maximum is one of the scores. *)
Lemma max_score_In ks m : max_score ks = Some m -> exists k, In k ks /\ fst k = Some m.
Proof.
  revert m. induction ks as [| k ks IH]; cbn; intros m H; [ discriminate | ].
  destruct (fst k) as [s |] eqn:E, (max_score ks) as [m1 |]; cbn in H; try discriminate;
    injection H as <-.
  - destruct (IH m1 eq_refl) as (k1 & ? & ?).
    unfold Rmax. destruct (Rle_dec s m1); [ exists k1 | exists k ]; auto.
  - exists k; auto.
  - destruct (IH m1 eq_refl) as (k1 & ? & ?). exists k1; auto.
Qed.

(* The monoid *)

Lemma state_eq (m m' l l' : R) (o o' : vec) :
  m = m' -> l = l' -> (forall c, o c = o' c) -> Some (m, l, o) = Some (m', l', o').
Proof. intros -> -> H. now rewrite (functional_extensionality _ _ H). Qed.

Theorem merge_None_l a : merge None a = a.
Proof. destruct a as [[[? ?] ?] |]; reflexivity. Qed.

Theorem merge_None_r a : merge a None = a.
Proof. destruct a as [[[? ?] ?] |]; reflexivity. Qed.

Theorem merge_comm a b : merge a b = merge b a.
Proof.
  destruct a as [[[ma la] oa] |], b as [[[mb lb] ob] |]; cbn; trivial.
  rewrite (Rmax_comm mb ma). apply state_eq; intros; ring.
Qed.

Lemma exp_step x y z u : exp (y - z) * (exp (x - y) * u) = exp (x - z) * u.
Proof. rewrite <- Rmult_assoc, <- exp_plus. do 2 f_equal. ring. Qed.

Theorem merge_assoc a b c : merge a (merge b c) = merge (merge a b) c.
Proof.
  destruct a as [[[ma la] oa] |], b as [[[mb lb] ob] |], c as [[[mc lc] oc] |]; cbn; trivial.
  rewrite (Rmax_assoc ma mb mc).
  apply state_eq; intros; rewrite ?Rmult_plus_distr_l, ?exp_step; ring.
Qed.

(* direct is a homomorphism *)

Theorem direct_app a b : direct (a ++ b) = merge (direct a) (direct b).
Proof.
  unfold direct. rewrite max_score_app.
  destruct (max_score a) as [ma |] eqn:Ea, (max_score b) as [mb |] eqn:Eb;
    cbn; trivial; apply state_eq; intros; rewrite ?wsum_app; trivial.
  1, 2: now rewrite (wsum_shift ma (Rmax ma mb) _ a), (wsum_shift mb (Rmax ma mb) _ b).
  1, 2: rewrite (wsum_masked ma _ b Eb); ring.
  1, 2: rewrite (wsum_masked mb _ a Ea); ring.
Qed.

Lemma direct_cons k ks : direct (k :: ks) = merge (direct [k]) (direct ks).
Proof. apply (direct_app [k] ks). Qed.

Theorem direct_perm a b : Permutation a b -> direct a = direct b.
Proof.
  induction 1 as [| k a b _ IH | x y a | a b c _ IH1 _ IH2]; trivial.
  - now rewrite direct_cons, (direct_cons k b), IH.
  - rewrite (direct_cons y (x :: a)), (direct_cons x a), (direct_cons x (y :: a)), (direct_cons y a).
    rewrite !merge_assoc. now rewrite (merge_comm (direct [y])).
  - congruence.
Qed.

Theorem eval_flatten t : eval t = direct (flatten t).
Proof. induction t; cbn; [ reflexivity | now rewrite IHt1, IHt2, direct_app ]. Qed.

(* The main theorem: any tree over any partition and any order of the keys. *)
Theorem tree_is_direct t ks : Permutation (flatten t) ks -> eval t = direct ks.
Proof. intros H. rewrite eval_flatten. now apply direct_perm. Qed.

(* What direct means *)

Lemma wsum_one_positive m ks k s : In k ks -> fst k = Some s -> 0 < wsum m (fun _ => 1) ks.
Proof.
  assert (W : forall k, 0 <= weight m k).
  { intros [[x |] v]; cbn; [ left; apply exp_pos | lra ]. }
  assert (N : forall l, 0 <= wsum m (fun _ => 1) l).
  { induction l as [| a l IH]; cbn; [ lra | specialize (W a); lra ]. }
  induction ks as [| a ks IH]; cbn; [ tauto | intros [-> | Hk] Hs ].
  - specialize (N ks). unfold weight. rewrite Hs. pose proof (exp_pos (s - m)). lra.
  - specialize (W a). specialize (IH Hk Hs). lra.
Qed.

Theorem direct_None ks : direct ks = None <-> forall k, In k ks -> fst k = None.
Proof.
  rewrite <- max_score_None. unfold direct.
  destruct (max_score ks); cbn; split; congruence.
Qed.

Theorem direct_Some ks m l o : direct ks = Some (m, l, o) ->
  0 < l /\
  (exists k, In k ks /\ fst k = Some m) /\
  (forall k s, In k ks -> fst k = Some s -> s <= m) /\
  exp m * l = wsum 0 (fun _ => 1) ks /\
  (forall c, o c / l = softmax_average ks c).
Proof.
  unfold direct. destruct (max_score ks) as [m' |] eqn:E; cbn; [ | discriminate ].
  intros H. injection H as <- <- <-.
  destruct (max_score_In ks m' E) as (k & Hk & Hs).
  pose proof (wsum_one_positive m' ks k m' Hk Hs) as Hl.
  split; [ exact Hl | split; [ now exists k | split; [ | split ] ] ].
  - intros k' s. now apply max_score_ge.
  - rewrite (wsum_shift m' 0). now rewrite Rminus_0_r.
  - intros c. unfold softmax_average. rewrite !(wsum_shift m' 0), Rminus_0_r.
    field. pose proof (exp_pos m'). lra.
Qed.

(* Together: any fold gives the softmax average of the visible keys. *)
Theorem tree_is_softmax t ks : Permutation (flatten t) ks ->
  match eval t with
  | None => forall k, In k ks -> fst k = None
  | Some (m, l, o) =>
      0 < l /\ (forall k s, In k ks -> fst k = Some s -> s <= m) /\
      forall c, o c / l = softmax_average ks c
  end.
Proof.
  intros H. rewrite (tree_is_direct t ks H).
  destruct (direct ks) as [[[m l] o] |] eqn:E.
  - destruct (direct_Some ks m l o E) as (? & _ & ? & _ & ?). auto.
  - now apply direct_None.
Qed.
